"""Exercises of the lesson on TensorRT: build an engine, read its list, call it on GPU memory,
repair a graph.
"""

import gc
import tempfile
from pathlib import Path

import onnx

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten


def build_engine(trt, model, shapes, logger):
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model):
        raise ValueError(parser.get_error(0).desc())
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    profile = builder.create_optimization_profile()
    profile.set_shape("input", *shapes)
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ValueError("TensorRT could not build this network: the logger's messages say why")
    return bytes(plan)


def verify_build_engine(answer):
    """On a stand-in that notes every call; and on the library where it is installed, for it has
    the last word.
    """
    from labkit.engines import tensorrt
    from labkit.errors import Unavailable

    shapes = [(batch, 4, 5, 5) for batch in (2, 8, 32)]
    check_calls(answer, shapes)
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_network(folder).read_bytes()
    try:
        trt = tensorrt.library().trt
        logger = trt.Logger(trt.Logger.ERROR)
        trt.Builder(logger)
    except (Unavailable, TypeError, RuntimeError):
        return  # not installed, or the edition that wants a GPU
    plan = answer(trt, model, shapes, logger)
    expect(
        isinstance(plan, bytes),
        f"TensorRT took the calls, but expected bytes, found {shorten(plan)}.",
    )


def check_calls(answer, shapes):
    for parses, builds in ((True, True), (False, True), (True, False)):
        trt = stand_in(parses, builds)
        try:
            plan = answer(trt, b"the model", shapes, "the logger")
        except Exception as error:
            check_error(error, trt, parses, builds)
            continue
        if not parses:
            raise Wrong(
                "The model did not parse, and your function said nothing. `parse` returns False: "
                "look at it."
            )
        expect(
            builds,
            "No engine was built, and your function said nothing. The builder "
            "returned None: look at it.",
        )
        check_build(trt, shapes)
        expect(
            plan == b"the plan",
            f"Expected what build_serialized_network returned, found {shorten(plan)}.",
        )


def stand_in(parses, builds):
    """A TensorRT that notes every call, for a model that parses or not, and an engine that can
    be built or not.
    """
    from unittest.mock import MagicMock

    trt = MagicMock()
    trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED = 5
    builder, parser = trt.Builder.return_value, trt.OnnxParser.return_value
    # as an answer may ask it
    builder.create_network.return_value.get_input.return_value.name = "input"
    parser.parse.return_value = parses
    parser.parse_from_file.return_value = parses
    builder.build_serialized_network.return_value = b"the plan" if builds else None
    return trt


def check_error(error, trt, parses, builds):
    """An error is right where something failed; one of Python's own, about None, does not say
    what.
    """
    if parses and builds:
        raise error
    if not parses and not trt.OnnxParser.return_value.parse.called:
        raise error
    if not builds and isinstance(error, (TypeError, AttributeError)):
        raise Wrong(
            "The builder returned None, and your function ended in "
            f"{type(error).__name__}: {error}. "
            "Look at the plan before you use it, and raise an error that says what happened."
        ) from error


def check_build(trt, shapes):
    """What a builder must have been told by the end of the call."""
    builder, parser = trt.Builder.return_value, trt.OnnxParser.return_value
    network, config = (
        builder.create_network.return_value,
        builder.create_builder_config.return_value,
    )
    profile = builder.create_optimization_profile.return_value
    flags = told(builder.create_network)
    expect(
        flags == [1 << 5],
        "The network must be strongly typed: create_network(1 << int(...STRONGLY_TYPED)).",
    )
    expect(
        network in told(trt.OnnxParser), "The parser fills a network: OnnxParser(network, logger)."
    )
    for user in (trt.Builder, trt.OnnxParser):
        expect(
            "the logger" in told(user),
            "Builder and parser send their messages to the logger that they are given.",
        )
    detailed = config.profiling_verbosity == trt.ProfilingVerbosity.DETAILED
    expect(
        detailed, "Without config.profiling_verbosity = DETAILED the logger gets no list of steps."
    )
    expect(b"the model" in told(parser.parse), "The parser wants the bytes: parser.parse(model).")
    ranges = told(profile.set_shape)
    expect(
        ranges,
        "A batch that varies wants a profile: profile.set_shape(name, smallest, usual, largest).",
    )
    expect(
        "input" in ranges, f"The profile is for the tensor 'input'; yours got {shorten(ranges)}."
    )
    found = [tuple(each) for each in ranges if not isinstance(each, str)]
    expect(
        found == shapes,
        f"Expected smallest, usual and largest shape in order, found {shorten(found)}.",
    )
    added = told(config.add_optimization_profile)
    expect(added == [profile], "The profile was never added to the configuration.")
    built = told(builder.build_serialized_network)
    expect(built == [network, config], "Build from the network and the configuration.")


def told(call):
    """What a recorded call was last given, by place and by name; empty when it was never made."""
    return [*call.call_args.args, *call.call_args.kwargs.values()] if call.called else []


def layer_types(lines, names):
    import re

    types = {}
    for line in lines:
        for name in names:
            if f"[ONNX Layer: {name}]" in line and "LayerType: kgen" not in line:
                types[name] = re.search(r"Inputs: .*?Datatype: (\w+)", line)[1]
    return types


def step(kind, inputs, nodes, *, constants="", outputs="Float"):
    """A line of the builder's list; types of the tensors as words, such as "Int8 Float"."""
    fields = {"Inputs": inputs, "Constants": constants, "Outputs": outputs}
    text = f"Name: a_step, LayerType: {kind}"
    for field, types in fields.items():
        tensors = [
            f"{{ Name: t{number}, Dimensions: [-1,4,28,28], Strides: "
            f"[3136,1,112,4], Datatype: {word}, "
            "Format: (NHWC) Channel major format }"
            for number, word in enumerate(types.split())
        ]
        text += f", {field}: [ {', '.join(tensors)}]"
    metadata = "".join(f"[ONNX Layer: {node}]" for node in nodes.split())
    return f"{text}, TacticName: a_tactic, StreamId: 0, Metadata: {metadata}"


STEPS = (
    step("shape_call", "", ""),
    step("kgen", "Float", "input_QuantizeLinear node_Conv_1", outputs="Int8"),
    step("correlation", "Int8", "node_Conv_1 input_DequantizeLinear", constants="Int8 Float"),
    step("kgen", "Float", "node_Conv_1 node_relu", outputs="Int8"),
    step("correlation", "Half Float", "node_Conv_10 node_add", constants="Half", outputs="Half"),
    step(
        "CaskConvolution",
        "Int8 Float",
        "node_Conv_2 node_relu_1",
        constants="Float",
        outputs="Half",
    ),
    step("maxpool", "Int8", "node_max_pool2d", outputs="Int8"),
    step("gemm", "Float", "/head/MatMul", constants="Int8", outputs="Int8"),
    step("kgen", "Int8", "/head/MatMul logits_DequantizeLinear"),
    step("runtime_fusion", "BFloat16", "both_a both_b"),
)
TYPES = {
    "node_Conv_1": "Int8",
    "node_Conv_10": "Half",
    "node_Conv_2": "Int8",
    "/head/MatMul": "Float",
    "both_a": "BFloat16",
    "both_b": "BFloat16",
}


def verify_layer_types(answer):
    """On lines made by hand, in which each field has another type; one name is in no step."""
    lines, names = list(STEPS), [*TYPES, "folded_away"]
    types = answer(lines, names)
    expect(
        isinstance(types, dict), f"Expected a dictionary {{name: type}}, found {shorten(types)}."
    )
    expect("folded_away" not in types, "A node that no step names has no type: leave it out.")
    missing = [name for name in TYPES if name not in types]
    expect(not missing, f"No type for {', '.join(missing)}, whose step is in the list.")
    extra = sorted(set(types) - set(TYPES))
    expect(not extra, f"Only nodes of `names` were asked for; yours has {shorten(extra)}, too.")
    for name, expected in TYPES.items():
        expect(
            types[name] == expected,
            f"{name}: expected {expected!r}, found {shorten(types[name])}.{reason(name)}",
        )
    last_first = answer(lines[::-1], names)
    expect(
        last_first == TYPES,
        "With the steps in another order the types change: a kgen step does not count.",
    )
    expect(lines == list(STEPS), "Your function changes the list that it was given.")


def reason(name):
    """What most likely made this type wrong."""
    reasons = {
        "node_Conv_1": " The steps of LayerType kgen before and behind it do not count, nor does "
        "node_Conv_10.",
        "node_Conv_10": " The first tensor of its Inputs is asked for.",
        "node_Conv_2": " Its Inputs count, not its Constants or Outputs.",
        "/head/MatMul": " Its Inputs count, not its Constants or Outputs; a kgen "
        "step does not count.",
    }
    return reasons.get(name, "")


def repair_zero_point(scale, zero_point):
    low, high = (0 - zero_point) * scale, (255 - zero_point) * scale
    return max(-low, high) / 127, 0


def verify_repair_zero_point(answer):
    cases = {
        "what a ReLU leaves (zero point 0)": (0.02, 0),
        "an input that reaches further up than down": (0.02, 100),
        "an input that reaches further down than up": (0.5, 200),
        "a balanced input": (0.1, 128),
        "an input whose middle lies just below 0": (0.0137, 127),
    }
    for name, (scale, zero) in cases.items():
        found = answer(scale, zero)
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise Wrong(f"For {name}: expected a pair (scale, zero point), found {shorten(found)}.")
        expect(
            found[1] == 0,
            f"For {name}: TensorRT wants a zero point of 0; yours is {shorten(found[1])}.",
        )
        reach = max(zero, 255 - zero) * scale
        expect_close(
            found[0], reach / 127, f"The step for {name}, which reaches {reach:.4g} away from 0"
        )


def put_relus_back(model, zero_points):
    nodes = []
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[2] in zero_points:
            relu = onnx.helper.make_node("Relu", [node.input[0]], [f"{node.output[0]}_positive"])
            nodes.append(relu)
            node.input[0] = relu.output[0]
        nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


GRIDS = ("had-zero", "had-40")  # zero points of the two quantizers of `two_quantizers`


def two_quantizers():
    """A model x -> quantize, dequantize -> +1 -> quantize, dequantize -> logits, on symmetric
    grids of step 1.
    """
    from onnx import TensorProto, helper

    first, second = GRIDS
    nodes = [
        helper.make_node("QuantizeLinear", ["input", "one", first], ["q1"]),
        helper.make_node("DequantizeLinear", ["q1", "one", first], ["d1"]),
        helper.make_node("Add", ["d1", "one"], ["sum"]),
        helper.make_node("QuantizeLinear", ["sum", "one", second], ["q2"]),
        helper.make_node("DequantizeLinear", ["q2", "one", second], ["logits"]),
    ]
    stored = [helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])]
    stored += [helper.make_tensor(name, TensorProto.INT8, [], [0]) for name in GRIDS]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"])
        for name in ("input", "logits")
    ]
    graph = helper.make_graph(nodes, "two", ports[:1], ports[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def verify_put_relus_back(answer):
    """Numbers worked by hand: x = -7, -1, 3.

    A ReLU before the first grid makes 1, 1, 4; before the second 0, 0, 4.
    """
    import numpy as np
    from onnx.reference import ReferenceEvaluator

    numbers = np.array([-7, -1, 3], np.float32)
    by_hand = {(): [-6, 0, 4], (GRIDS[0],): [1, 1, 4], (GRIDS[1],): [0, 0, 4], GRIDS: [1, 1, 4]}
    for zero_points, expected in by_hand.items():
        model = two_quantizers()
        count = len(model.graph.node)
        changed = answer(model, set(zero_points))
        expect(changed is not None, "Return the model: the function gave back None.")
        expect(
            isinstance(changed, onnx.ModelProto),
            f"Expected a ModelProto, found {shorten(changed)}.",
        )
        relus = [node.op_type for node in changed.graph.node].count("Relu")
        case = f"For the zero points {sorted(zero_points) or 'none'}"
        expect(
            relus == len(zero_points),
            f"{case}: expected {len(zero_points)} ReLU nodes, found {relus}.",
        )
        expect(
            len(changed.graph.node) == count + relus,
            f"{case}: nodes of the file are missing, or stand twice.",
        )
        try:
            onnx.checker.check_model(changed)
            (found,) = ReferenceEvaluator(changed).run(None, {"input": numbers})
        except Exception as error:
            words = " ".join(str(error).split())[:160]
            raise Wrong(
                f"{case}: the file is not sound. A node stands after what it reads. {words}"
            ) from error
        text = (
            f"{case}, inputs {numbers.tolist()}: expected {expected}, found "
            f"{shorten(found.tolist())}."
        )
        expect(
            found.tolist() == expected,
            f"{text} The ReLU belongs between a quantizer and what it read.",
        )
        # A ReLU of 8-bit codes gives the same numbers, but no engine joins it with the layer before
        # the quantizer.
        positive = {node.output[0] for node in changed.graph.node if node.op_type == "Relu"}
        readers = {node.op_type for node in changed.graph.node if positive & set(node.input)}
        expect(
            readers <= {"QuantizeLinear"},
            f"{case}: the ReLU has to feed QuantizeLinear; {sorted(readers)} read it.",
        )


def gpu_classes(context, cuda, images):
    import numpy as np

    images, classes = np.ascontiguousarray(images, np.float32), []
    most = context.engine.get_tensor_profile_shape("input", 0)[2][0]
    for start in range(0, len(images), most):
        part = images[start : start + most]
        context.set_input_shape("input", part.shape)
        logits = np.empty(tuple(context.get_tensor_shape("logits")), np.float32)
        device_input, device_logits = cuda.mem_alloc(part.nbytes), cuda.mem_alloc(logits.nbytes)
        stream = cuda.Stream()
        cuda.memcpy_htod(device_input, part)
        context.set_tensor_address("input", int(device_input))
        context.set_tensor_address("logits", int(device_logits))
        context.execute_async_v3(stream.handle)
        stream.synchronize()
        cuda.memcpy_dtoh(logits, device_logits)
        device_input.free()
        device_logits.free()
        classes.append(logits.argmax(axis=1))
    return np.concatenate(classes)


def tiny_network(folder):
    """An ONNX file whose answer is known by hand: the logits are the means of the channels of
    (N, 4, 5, 5).
    """
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("GlobalAveragePool", ["input"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["logits"]),
    ]
    ports = [("input", ("batch", 4, 5, 5)), ("logits", ("batch", 4))]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ports
    ]
    graph = helper.make_graph(nodes, "means", values[:1], values[1:])
    path = Path(folder) / "means.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path
    )
    return path


USUAL, NARROW = (1, 8, 64), (1, 4, 24)  # profiles: smallest, usual, largest batch
CALLS = {3: USUAL, 17: USUAL, 5: USUAL, 100: NARROW, 9: USUAL}  # {images: profile}
VIEW = 5  # so many images are a view that is not in one piece
READY = 9  # so many need no copy: what an answer changes in them, it changes for the caller


def verify_gpu_classes(answer):
    import numpy as np

    from labkit.lesson.support import load_support

    rehearsal = load_support("rehearsal")

    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = tiny_network(folder)
        for count, profile in CALLS.items():
            images = random.standard_normal((count, 4, 5, 5))  # float64, as NumPy makes them
            if count == VIEW:  # the channels of most image files come last
                images = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
            images = images.astype(np.float32) if count == READY else images
            gpu, before = rehearsal.Rehearsal(), images.copy()
            context = rehearsal.Context(gpu, path, profile)
            try:
                found = np.asarray(answer(context, gpu, images))
            except (rehearsal.Misuse, ValueError) as error:
                raise Wrong(
                    f"A GPU program would have crashed here. {error}{clue(context, error)}"
                ) from error
            expect(
                (images == before).all(),
                "Your function changes the images, which belong to the caller.",
            )
            check_steps(gpu, count, profile)
            expect(found.shape == (count,), shape_of_all(count, profile, found))
            wrong = int((found != true_classes(images)).sum())
            if wrong:
                raise Wrong(
                    f"{wrong} of {count} classes are wrong: "
                    f"{suspect(answer, path, gpu.steps, images)}"
                )
            if gpu.memory:  # what stands in a circle of references goes only now
                gc.collect()
            left = sum(allocation.size for allocation in gpu.memory.values())
            expect(
                left == 0,
                f"{left} bytes of GPU memory are still held after the call: .free() each of them.",
            )


def clue(context, error):
    """What an error of the rehearsal most likely comes from."""
    if context.refused and context.refused[0] > context.profile[-1]:
        return (
            f" set_input_shape returned False: {context.refused[0]} images are more than the "
            f"{context.profile[-1]} of "
            "this profile. Ask for the largest shape, "
            'context.engine.get_tensor_profile_shape("input", 0)[2], and '
            "call in parts."
        )
    if "need at least one array" in str(error):
        return (
            ". No part was done: the loop must also take a part smaller than the profile's "
            "largest batch."
        )
    return " Before set_input_shape the output has no shape." * (
        "negative dimensions" in str(error)
    )


def shape_of_all(count, profile, found):
    """The message about classes that are too few, too many, or no row."""
    parts = f" The profile allows {profile[-1]} per call: go on until all are done." * (
        count > profile[-1]
    )
    return f"Expected one class for each of {count} images, found the shape {found.shape}.{parts}"


def check_steps(gpu, count, profile):
    """What must happen whatever the classes are: memory that nothing was written to may hold the
    right ones.
    """
    run = {"execute_async_v3", "execute_v2"} & set(gpu.steps)
    never = f"For {count} images, where a call may take {profile[-1]}, the engine was never run"
    expect(
        run,
        f"{never}: no line reached context.execute_async_v3(stream.handle). A last, smaller part "
        "counts, too.",
    )
    back = any(step.startswith("memcpy_dtoh") for step in gpu.steps)
    expect(back, "The logits never came back to the host: cuda.memcpy_dtoh(logits, device_logits).")
    expect(
        not gpu.queue,
        "Work still waits in a stream when your function returns: stream.synchronize().",
    )


def true_classes(images):
    """What `tiny_network` answers."""
    return images.astype(float).mean(axis=(2, 3)).argmax(axis=1)


def suspect(answer, path, steps, images):
    """What most likely made the classes wrong."""
    import numpy as np

    from labkit.lesson.support import load_support

    rehearsal = load_support("rehearsal")

    profile = CALLS[len(images)]
    if not any(step.startswith("memcpy_htod") for step in steps):
        return "the images never went to the GPU: cuda.memcpy_htod(device_input, images)."
    waited = (
        steps[steps.index("execute_async_v3") :] if "execute_async_v3" in steps else ["synchronize"]
    )
    if "memcpy_dtoh" in waited[: waited.index("synchronize")]:
        return "the logits were read before the stream was waited for: stream.synchronize()."
    gpu, single = rehearsal.Rehearsal(), images.astype(np.float32)
    if np.array_equal(
        np.asarray(answer(rehearsal.Context(gpu, path, profile), gpu, single)), true_classes(single)
    ):
        return (
            "with float32 they are right, these images are float64: np.ascontiguousarray(images, "
            "np.float32)."
        )
    return "the steps are in order, so look at what is copied: which array, and how many bytes?"


EXERCISES = (
    Exercise(
        id="build-engine",
        task="Build an engine: builder, network, parser, profile, configuration, bytes.",
        difficulty=2,
        minutes=8,
        hint="The order is that of the building cell. `parse` says by False that it failed, the "
        "builder by None. "
        "Return bytes(plan).",
        reference=build_engine,
        verify=verify_build_engine,
    ),
    Exercise(
        id="layer-types",
        task="Read in the builder's list of steps in which type each layer computes.",
        difficulty=2,
        minutes=7,
        hint='For each line, for each name: is f"[ONNX Layer: {name}]" in the line, and '
        '"LayerType: kgen" not? Then '
        "the type is the word after the first `Datatype: ` behind `Inputs: `, by "
        "re.search or by split.",
        reference=layer_types,
        verify=verify_layer_types,
    ),
    Exercise(
        id="repair-zero-point",
        task="Move a quantization with a zero point onto the symmetric grid that TensorRT wants.",
        difficulty=2,
        minutes=7,
        hint="Which real numbers did the ends 0 and 255 of the old grid stand for? The new grid "
        "goes from -127 to 127.",
        reference=repair_zero_point,
        verify=verify_repair_zero_point,
    ),
    Exercise(
        id="put-relus-back",
        task="Change a graph: a ReLU before each quantizer whose grid began at 0.",
        difficulty=2,
        minutes=10,
        hint="Walk over model.graph.node and collect a new list. A quantizer's inputs are [data, "
        "scale, zero point]. "
        'onnx.helper.make_node("Relu", [name it reads], [a new name]) goes into the list just '
        "before the quantizer, "
        "which then reads the new name. At the end del model.graph.node[:], and "
        "extend it with the list.",
        reference=put_relus_back,
        imports="import onnx",
        verify=verify_put_relus_back,
    ),
    Exercise(
        id="gpu-classes",
        task="Call an engine on GPU memory by hand: allocate, copy, run, wait, copy back, free; "
        "many images in parts.",
        difficulty=3,
        minutes=20,
        hint="First for few images. The shape comes first: it decides how much memory the output "
        "takes. Sizes are "
        "bytes; addresses are int(memory). Then a loop over parts of at most the profile's "
        "largest batch.",
        reference=gpu_classes,
        verify=verify_gpu_classes,
    ),
)
