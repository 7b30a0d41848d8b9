"""Makes docs/published-experiments.md from the register of published experiments.

The page is for a reader who knows one of the five documents and looks for its content in the
course.
"""

from typing import NamedTuple

from labkit.authoring import experiments
from labkit.authoring.experiments import Item
from labkit.authoring.sections import link_to
from labkit.files import root
from labkit.format import shown
from labkit.ledger import published, recorded
from labkit.ledger.rows import PROFILES
from labkit.ledger.slugs import slug
from labkit.lesson.cards import template
from labkit.lesson.claims import entry, judged

ROWS_IN_WORDS = 6  # an item that takes more rows of a published table links to the table alone
ROWS_OF_WHOLE_TABLE = 3  # the same of an item that takes a table as it is
# by the end of a column's name
UNITS = {"s": "s", "ms": "ms", "pj": "pJ", "um2": "µm²", "mb": "MB"}


def as_page() -> str:
    """Return the page docs/published-experiments.md, in Markdown."""
    results = RecordedResults()
    page = template("experiments.md").render(
        sources=experiments.sources(),
        count=sum(1 for _ in experiments.items()),
        tables=[_table(name) for name in published.studies()],
        where=_where,
        numbers=_numbers,
        ours={item.key: results.sentences(item) for item in experiments.items()},
        origins=results.origins,
    )
    return page.strip() + "\n"


def _where(item):
    """Return a link to the section that treats an item: "[lesson: heading](address)"."""
    path, section = item.find()
    name = item.lesson if path.suffix == ".md" else path.stem
    return f"[{name}: {section.heading}]({link_to(path, section, root() / 'docs')})"


def _numbers(item):
    """Return the published numbers of an item in words: "compile, total 145.69 s, 46.16 %; ...".

    The text is empty for an item without a table. It is also empty for an item of more than
    `ROWS_IN_WORDS` rows, or of a whole table of more than `ROWS_OF_WHOLE_TABLE`: the page then only
    links to the table.
    """
    if not item.table:
        return ""
    frame = published.table(item.table)
    for column, values in item.rows.items():
        frame = frame[frame[column].isin(values)]
    if item.columns:
        frame = frame[item.columns].drop_duplicates()
    most_rows = ROWS_IN_WORDS if item.rows or item.columns else ROWS_OF_WHOLE_TABLE
    if len(frame) > most_rows:
        return ""
    return "; ".join(_row_in_words(row) for row in _rows(frame))


def _rows(frame):
    """Return the rows of a published table as dictionaries; a missing value is None."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def _row_in_words(row):
    """Return the values of a row with commas between them: "compile, total 145.69 s, 46.16 %".

    Missing values are left out.
    """
    return ", ".join(_in_words(column, value) for column, value in row.items() if value is not None)


def _in_words(column, value):
    """Return a published value as text: "compiled", "46.16 %", "total 145.69 s".

    A number has its column's name in front of it, unless it is an accuracy or a number of bytes.
    """
    if column == "compiled":
        return "compiled" if value else "not compiled"
    if isinstance(value, str):
        return value
    if column == "accuracy":
        return f"{100 * value:.4g} %"
    if column.endswith("_bytes"):
        return shown(value, "B")
    name, _, suffix = column.rpartition("_")
    if suffix in UNITS:
        return f"{name.replace('_', ' ')} {value:g} {UNITS[suffix]}"
    return f"{column.replace('_', ' ')} {value:g}"


def _table(name):
    """Return a published table as a dictionary for the page's template.

    Its keys are "name", "columns" (a list of names), "rows" (a list of lists of texts), and the
    facts that the table comes with, such as "source" and "hardware".
    """
    frame = published.table(name)
    rows = []
    for row in _rows(frame):
        rows.append([_plain(value) for value in row.values()])
    return {"name": name, "columns": list(frame.columns), "rows": rows, **frame.attrs}


def _plain(value):
    """Return a value of a published table as text, as its source writes the value.

    A missing value gives "".
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value)


class Origin(NamedTuple):
    """The origin of recorded results: a machine, a profile and an edition of the course.

    hardware      name of the machine
    instructions  instruction set of its CPU, such as "AVX512"; "" where it was not recorded
    profile       "quick", "lab" or "paper"
    edition       number of the course's edition
    """

    hardware: str
    instructions: str
    profile: str
    edition: int


class RecordedResults:
    """Puts the course's own recorded results into sentences, and marks each with its origin.

    origins  the origins of all results so far, without repetition; the first is marked by the
             letter A, the second by B
    """

    def __init__(self) -> None:
        self.origins: list[Origin] = []

    def sentences(self, item: Item) -> list[str]:
        """Return a list of sentences, one for each recorded result of an item.

        Each ends with the letter of its origin and its date.
        """
        lesson = slug(item.lesson)
        sentences = []
        for claim_id in item.claims:
            for row in _newest_record(_rows_of_claim(lesson, claim_id)):
                sentences.append(f"{row.sentence}: **{row.verdict}**{_value(row)}{self._mark(row)}")
        for arm in item.ratios:
            for row in _newest_record(_rows_of_arm(lesson, arm)):
                speed = f"{shown(row.median, 'x')} ({row.low:.3g} to {row.high:.3g})"
                sentences.append(
                    f"{arm} against {row.baseline}, {row.name}: {speed}{self._mark(row)}"
                )
        if item.trainings:
            for row in _newest_record(_rows_of_trainings(item.experiment)):
                sentences.append(f"{row.variant}, {row.dataset}: {_training(row)}{self._mark(row)}")
        return sentences

    def _mark(self, row):
        """Return the letter of a row's origin, and the date of the row: " [A, 2026-11-27]"."""
        origin = Origin(row.hardware, row.instructions or "", row.profile, row.recorded_edition)
        if origin not in self.origins:
            self.origins.append(origin)
        letter = chr(ord("A") + self.origins.index(origin))
        return f" [{letter}, {row.recorded_on}]"


def _rows_of_claim(lesson, claim_id):
    """Return the recorded verdicts on a claim of a lesson, as a DataFrame with one per row.

    A verdict on an earlier wording of the claim is left out.
    """
    rows = recorded("claims", experiment=lesson)
    rows = rows[rows["claim_id"] == claim_id]
    claim = entry(lesson, claim_id)
    return rows[[judged(claim, sentence) for sentence in rows["sentence"]]]


def _rows_of_arm(lesson, arm):
    """Return the recorded ratios of a variant to its baseline, as a DataFrame with one per row.

    lesson  name of the lesson that compares them
    arm     name of the variant
    """
    rows = recorded("ratios", experiment=lesson)
    return rows[rows["arm"] == arm]


def _rows_of_trainings(experiment):
    """Return the recorded trainings of an experiment that have a time, as a DataFrame."""
    rows = recorded("trainings", experiment=experiment)
    return rows[rows["total_s"].notna()]


def _newest_record(rows):
    """Return the rows of one record, as a list: the newest among those of the longest profile.

    A record is all rows with the same hardware, date and run. Profiles are, from short to long,
    "quick", "lab" and "paper".

    rows  a DataFrame of recorded rows
    """
    if rows.empty:
        return []

    # Sort them, and take the rows of the last one's record.
    length_of_profile = {profile: length for length, profile in enumerate(PROFILES)}
    length = rows["profile"].map(length_of_profile)
    rows = rows.assign(length=length).sort_values(
        ["length", "recorded_on", "hardware"], kind="stable"
    )
    record_columns = ["hardware", "recorded_on", "run_key"]
    of_last_record = (rows[record_columns] == rows[record_columns].iloc[-1]).all(axis=1)
    return list(rows[of_last_record].itertuples())


def _training(row):
    """Return the time of a training in words, followed by its accuracy where it was tested."""
    accuracy = ""
    if row.accuracy == row.accuracy:  # it is not NaN
        accuracy = f", {100 * row.accuracy:.3g} %"
    return f"{shown(row.total_s, 's')}{accuracy}"


def _value(row):
    """Return ", value (low to high)" of a recorded claim, or "" where the claim has no value.

    The interval is left out where both ends are equal.
    """
    if row.value is None or row.value != row.value:
        return ""
    unit = row.unit if isinstance(row.unit, str) else ""
    interval = "" if row.low == row.high else f" ({row.low:.3g} to {row.high:.3g})"
    return f", {shown(row.value, unit)}{interval}"
