"""Define the command `python -m labkit.gpu`, which needs no packages besides PyTorch.

It does what `labkit gpu` does.
"""

import argparse
import sys
from pathlib import Path

from labkit.errors import LabError
from labkit.gpu import ITEMS, MINUTES, measure


def main(words=None):
    """Run the command, and return its exit code.

    An error that the user can mend is printed without a traceback.

    words  list of the arguments, without the program's name; None: those of this process
    """
    options = parser().parse_args(words)
    if options.list:
        for name, item in ITEMS.items():
            print(f"{name:16} {item.title}")
        return 0
    only = options.only.split(",") if options.only else None
    try:
        measure(
            only,
            minutes=options.minutes,
            tiny=options.tiny,
            folder=options.out,
            hardware=options.hardware,
        )
    except LabError as error:
        print(f"labkit gpu: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "labkit gpu: stopped. What was measured is kept; the same command goes on.",
            file=sys.stderr,
        )
        return 130
    return 0


def parser():
    """Return the `argparse.ArgumentParser` of the command."""
    options = argparse.ArgumentParser(
        prog="python -m labkit.gpu", description="Measure this machine's GPU."
    )
    options.add_argument(
        "--only",
        metavar="ITEM[,ITEM]",
        help="measure these items, also if they are done (see --list)",
    )
    options.add_argument(
        "--minutes", type=float, default=MINUTES, help="stop after so many minutes (%(default)s)"
    )
    options.add_argument(
        "--tiny",
        action="store_true",
        help="tiny sizes, to try it on a CPU: the numbers mean nothing",
    )
    options.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where to; artifacts/gpu by default"
    )
    options.add_argument(
        "--hardware",
        metavar="NAME",
        help='such as "RTX 4090, Ryzen 7950X"; as the card calls itself',
    )
    options.add_argument("--list", action="store_true", help="list the items, and measure nothing")
    return options


if __name__ == "__main__":
    sys.exit(main())
