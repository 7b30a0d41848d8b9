"""What the lessons promise in JupyterLab: no error, nothing lost or too wide, all of it by
keyboard, in both themes.

    python benchmarks/browser.py [--quick] [LESSON ...]

Each lesson is opened in Chromium as `make lab` does it, run in its quick profile, looked at, saved
and opened again. All lessons: about half an hour. Quick: two of them, about three minutes. LESSON:
numbers, such as 04 05.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from figures import Figures

from labkit.files import notebooks, root

sys.path.insert(0, str(root() / "tests"))
from lesson_checks import SEEN, run_and_look
from test_browser import copy_of_the_course, jupyterlab, page_of

TWO = ("00", "02")
FIRST = "00_start_here"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lessons", nargs="*", help="numbers; all by default")
    parser.add_argument("--quick", action="store_true", help="two lessons")
    options, figures, found = parser.parse_args(), Figures(), {what: [] for what in SEEN}
    wanted = options.lessons or (TWO if options.quick else [path.name[:2] for path in notebooks()])
    names = [path.stem for path in notebooks() if path.name[:2] in wanted]
    used = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        jupyterlab(copy_of_the_course(Path(folder) / "course")) as address,
    ):
        for name in names:
            begun = time.monotonic()
            with page_of(address.replace(FIRST, name) + "&reset") as (page, asked):
                seen, count = run_and_look(page, asked)
            print(f"# {name}: {time.monotonic() - begun:.0f} s, {count} widgets", flush=True)
            used += count
            for what, places in seen.items():
                found[what] += places
                for place in places[:5]:
                    print(f"#   {what}: {place}", flush=True)
    figures.add("browser_lessons", len(names), at_least=len(wanted))
    figures.add("browser_widgets_used", used, at_least=1)
    for what, places in found.items():
        figures.add(f"browser_{what.replace(' ', '_')}", len(places), at_most=0)
    figures.exit()


if __name__ == "__main__":
    main()
