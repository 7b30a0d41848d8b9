"""Silence for libraries that report on themselves."""

import logging
import warnings
from contextlib import contextmanager


@contextmanager
def quiet():
    """Without progress messages, and warnings about packages that are not needed here."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
