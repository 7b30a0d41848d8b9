"""Results of the published experiments that the lessons rebuild, and how to set one's own beside them.

Times of different machines are never compared: each table is divided by its own baseline first.
"""

from labkit.errors import LabError

STUDIES = {
    "training-phases": {
        "source": "ResNet-50 on CIFAR-100 by transfer, 20 epochs: seconds by phase, one change at a time",
        "hardware": "GPU not named",
        "columns": ("variant", "forward_s", "backward_s", "optimizer_s", "data_s", "total_s"),
        "rows": (
            ("baseline", 158, 160, 217, 28, 602),
            ("pinned memory", 160, 158, 208, 20, 585),
            ("cuDNN autotuner", 159, 159, 215, 26, 597),
            ("TorchScript", 110, 193, 202, 30, 574),
            ("all", 113, 195, 202, 22, 568),
        ),
    },
    "compile-amp": {
        "source": "ConvNeXt of 18,166,472 parameters, 200 classes, 224 x 224, batch 128: seconds of one epoch",
        "hardware": "RTX 4090",
        "columns": ("variant", "total_s", "accuracy"),
        "rows": (
            ("vanilla", 150.91, 0.4653),
            ("compile", 145.69, 0.4616),
            ("AMP", 136.97, 0.4786),
            ("compile + AMP", 110.99, 0.4716),
        ),
    },
    "activations": {
        "source": "inference of the same ConvNeXt with three activations, and with a hand-made FastSwish",
        "hardware": "RTX 4090",
        "columns": ("activation", "compiled", "batch", "latency_ms", "accuracy"),
        "rows": (
            ("GELU", False, 64, 60.8, 0.4653),
            ("GELU", False, 1, 14.11, 0.4653),
            ("GELU", True, 64, 57.31, 0.4653),
            ("GELU", True, 1, 5.44, 0.4653),
            ("HardSwish", False, 64, 61.63, 0.4432),
            ("HardSwish", False, 1, 13.62, 0.4432),
            ("HardSwish", True, 64, 54.31, 0.4432),
            ("HardSwish", True, 1, 5.26, 0.4432),
            ("ReLU", False, 64, 62.42, 0.4632),
            ("ReLU", False, 1, 13.39, 0.4632),
            ("ReLU", True, 64, 46.78, 0.4632),
            ("ReLU", True, 1, 5.17, 0.4632),
            ("FastSwish", False, 64, 98.86, None),
            ("FastSwish", False, 1, 19.97, None),
            ("FastSwish", True, 64, 86.04, None),
            ("FastSwish", True, 1, 29.32, None),
        ),
    },
    "activation-memory": {
        "source": "memory of training the same ConvNeXt",
        "hardware": "RTX 4090",
        "columns": ("variant", "memory_bytes"),
        "rows": (
            ("ReLU", 6_000_000_000),
            ("FastSwish, naive", 11_700_000_000),
            ("FastSwish, custom backward", 9_100_000_000),
        ),
    },
}


def names():
    """The published studies."""
    return tuple(STUDIES)


def table(study):
    """The table of one study, a DataFrame; `.attrs` has its source and hardware.

    Units stand in the column names (_s seconds, _ms, _bytes); accuracy is a fraction from 0 to 1.
    """
    import pandas as pd

    if study not in STUDIES:
        raise LabError(f"There is no published study {study!r}.", expected=" or ".join(STUDIES), found=study)
    known = STUDIES[study]
    frame = pd.DataFrame(known["rows"], columns=list(known["columns"])).convert_dtypes()
    frame.attrs.update(source=known["source"], hardware=known["hardware"])
    return frame


def beside(own, study, column, *, by="variant", baseline=None):
    """One's own numbers beside the published and the recorded ones, each divided by its own baseline.

    own       rows or a DataFrame with the columns `by` and `column`, as in the published table
    by        the column, or a list of columns, that names a row
    baseline  the row that is 1; None: the first of `own`
    returns   a DataFrame, a row for each name and a column for each place; what nobody measured is missing
    """
    import pandas as pd

    own = own if isinstance(own, pd.DataFrame) else pd.DataFrame(own)
    baseline = own.set_index(by).index[0] if baseline is None else baseline
    places = {"here": own, **published_here(study, column), **recorded(study)}
    shares = {place: share(frame, column, by, baseline) for place, frame in places.items()}
    order = list(dict.fromkeys(name for values in shares.values() for name in values.index))
    return pd.DataFrame({place: values.reindex(order) for place, values in shares.items()}).rename_axis(by)


def published_here(study, column):
    """{title: the published table}, if it has such a column."""
    frame = table(study)
    return {f"published ({frame.attrs['hardware']})": frame} if column in frame else {}


def recorded(study):
    """{title: rows of this study on other, named hardware}."""
    from labkit import ledger

    frame = ledger.recorded("trainings")
    frame = frame[frame["study"] == study]
    return {f"{hardware}, {date}": rows for (hardware, date), rows in frame.groupby(["hardware", "recorded_on"])}


def share(frame, column, by, baseline):
    """A column divided by its value in the baseline's row; all missing where there is no baseline."""
    values = frame.set_index(by)[column].astype("Float64")
    return values / (values.loc[baseline] if baseline in values.index else float("nan"))
