"""What to try where a file in small numbers answers too roughly: only what was not tried."""

from labkit.device import adds_int8

# Recipes whose weights have 7 bits unless the user asks for more.
SEVEN_BITS = ("onnxruntime", "openvino")


def ways_on(
    precision: str,
    *,
    with_data: bool,
    automatic: bool = False,
    loss: float = 0.5,
    with_classes: bool = True,
    method: str = "minmax",
    recipe: str = "tensorrt",
    weight_bits: str = "recipe",
) -> str:
    """Return as a sentence what may keep more of the answers than the settings of `labkit quantize`
    that failed.

    precision  one of `PRECISIONS`
    with_data  real data were observed
    automatic  layers were left in float by themselves, `loss` answers of a hundred being allowed
    with_classes  answers were counted; else decibels alone decide
    """
    remedies = []
    if precision in ("int8", "int8+fp16"):
        if not automatic:
            remedies.append("leave the layers in float that lose most: --keep auto finds them")
        else:
            remedies.append("look at more examples: a larger --count")
            if loss and with_classes:
                remedies.append(f"leave more layers in float: a --loss below {loss:g}")
            remedies.append(
                "name them yourself, those that were found and more: --keep NODE for each, the "
                "names in `labkit view`"
            )
        if method == "minmax":
            remedies.append("try --method percentile")
        if weight_bits in ("recipe", "7") and recipe in SEVEN_BITS and adds_int8():
            remedies.append("weights of 8 bits, which this CPU adds up exactly: --weight-bits 8")
    elif not with_data:
        if precision == "fp16":
            remedies.append("keep in float32 what comes near the largest float16: --data finds it")
        remedies.append("--precision int8 with --data and --keep auto")
    else:
        remedies.append("--precision int8 with --keep auto")

    # Another precision.
    if precision == "int8+fp16":
        remedies.append("--precision int8, which rounds once less")
    if precision != "fp16":
        remedies.append("--precision fp16")
    else:
        remedies.append(
            "else keep the file in float32: float16 has too few digits for these answers"
        )
    return f"{'; '.join(remedies)}. --min-sqnr sets what you accept"
