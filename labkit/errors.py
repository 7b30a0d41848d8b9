"""Errors that say what is wrong, what was expected, what was found, and what to do next."""


class LabError(Exception):
    """A problem the reader can act on.

    what      one sentence: what went wrong
    expected  what should have been there
    found     what was there instead
    fix       the next step, best a command to copy
    """

    def __init__(self, what, *, expected=None, found=None, fix=None):
        super().__init__(what)
        self.what, self.expected, self.found, self.fix = what, expected, found, fix

    def __str__(self):
        parts = [("expected", self.expected), ("found", self.found), ("next", self.fix)]
        return "\n".join([self.what, *(f"  {name}: {text}" for name, text in parts if text is not None)])


class DataError(LabError):
    """A data file is missing, damaged or not the published one."""


class LedgerError(LabError):
    """The ledger cannot be opened, or a row does not fit its type."""


class LessonError(LabError):
    """A notebook uses the teaching words in a way that cannot work."""


class MeasureError(LabError):
    """A measurement that would not mean anything is refused."""


class Unavailable(LabError):
    """Something this machine does not have: a device, an engine, a counter."""
