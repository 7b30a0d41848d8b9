"""A memory that counts: how many numbers does a kernel fetch and put back?"""

from labkit.errors import MeasureError


class CountedMemory:
    """Arrays by name; `load` and `store` are what a kernel may do with them.

    arrays   {name: NumPy array}
    loaded, stored  {name: numbers fetched, or put back, so far}
    """

    def __init__(self, **arrays):
        self.arrays, self.loaded, self.stored = arrays, {}, {}

    def load(self, name, places):
        """The numbers of an array at some places."""
        self.check(name, places)
        self.loaded[name] = self.loaded.get(name, 0) + len(places)
        return self.arrays[name][places]

    def store(self, name, places, values):
        """Put numbers into an array."""
        self.check(name, places)
        self.stored[name] = self.stored.get(name, 0) + len(places)
        self.arrays[name][places] = values

    def check(self, name, places):
        if name not in self.arrays:
            raise MeasureError(f"There is no array {name!r}.", expected=" or ".join(self.arrays), found=name)
        size, last = len(self.arrays[name]), max(places, default=0)
        if last >= size:
            raise MeasureError(f"The array {name!r} has no place {last}.", expected=f"places below {size}", found=last)

    @property
    def traffic(self):
        """All numbers that went to or fro."""
        return sum(self.loaded.values()) + sum(self.stored.values())
