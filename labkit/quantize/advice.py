"""Advise which settings of `labkit quantize` to try next where a quantized file loses too much.

Only settings that the user has not tried yet are named.
"""

from labkit.device import adds_int8

# Recipes whose weights have 7 bits unless the user asks for more.
SEVEN_BITS = ("onnxruntime", "openvino")


def remedies_in_words(
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
    """Return a text that lists other settings of `labkit quantize` which may lose fewer answers.

    The arguments are the settings of the file that lost too much:

    precision     one of `quantize_file.PRECISIONS`
    with_data     True if activations were observed on real data
    automatic     True if the function `automatic` chose the layers that stay in float
    loss          the limit of `automatic`: how many answers per hundred might be lost
    with_classes  True if the outputs hold classes, so that lost answers were counted; False if the
                  loss was measured in decibels only
    method        how the observed ranges were clipped: a key of `METHODS`
    recipe        the engine that the file is for, one of `ptq.RECIPES`
    weight_bits   "recipe", "auto", "7" or "8"
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
