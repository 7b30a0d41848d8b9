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
    "large-batch": {
        "source": "ResNet-50 on ImageNet, 90 epochs: top-1 error (%) at batch 256 and at 8192 (arXiv:1706.02677)",
        "hardware": "8 to 256 Tesla P100",
        "columns": ("variant", "error"),
        "rows": (
            ("small batch", 23.60),
            ("large batch", 41.67),
            ("root scaling, gradual", 26.22),
            ("linear scaling", 24.84),
            ("linear scaling, constant", 25.88),
            ("linear scaling, gradual", 23.74),
        ),
    },
    "arithmetic": {
        "source": "one operation, without fetching its operands: energies from Horowitz, 'Computing's energy problem', "
        "ISSCC 2014; areas synthesised for TSMC 45 nm, as in Dally's talks since 2015",
        "hardware": "45 nm chips, 0.9 V",
        "columns": ("operation", "format", "energy_pj", "area_um2"),
        "rows": (
            ("add", "int8", 0.03, 36),
            ("add", "int16", 0.05, 67),
            ("add", "int32", 0.1, 137),
            ("add", "fp16", 0.4, 1360),
            ("add", "fp32", 0.9, 4184),
            ("multiply", "int8", 0.2, 282),
            ("multiply", "int32", 3.1, 3495),
            ("multiply", "fp16", 1.1, 1640),
            ("multiply", "fp32", 3.7, 7700),
            ("read 32 bits from 8 KB of SRAM", "any", 5.0, None),
            ("read 32 bits from DRAM", "any", 640.0, None),
        ),
    },
    "sharp-minima": {
        "source": "sharpness in a box of 1e-3, of six networks those that differ most and least (arXiv:1609.04836)",
        "hardware": "not named",
        "columns": ("network", "small_batch", "large_batch"),
        "rows": (("F2: fully connected, TIMIT", 1.39, 310.64), ("C3: AlexNet, CIFAR-100", 29.85, 258.75)),
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
