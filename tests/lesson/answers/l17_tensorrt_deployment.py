"""Answers to the exercises of lesson 17: wrong ones that must be rejected, right ones written
differently.
"""

import numpy as np
import onnx

from labkit.lesson.exercises.l17_tensorrt_deployment import (
    build_engine,
    gpu_classes,
    layer_types,
    put_relus_back,
)


def keep_the_step(scale, zero_point):
    return scale, 0


def look_at_the_upper_end(scale, zero_point):
    return (255 - zero_point) * scale / 127, 0


def spread_the_old_range(scale, zero_point):
    return 255 * scale / 254, 0


def shift_into_int8(scale, zero_point):
    return scale, zero_point - 128


def edited(old, new, reference=gpu_classes):
    """The reference with one line replaced: a wrong answer."""
    import inspect

    source = inspect.getsource(reference)
    if old not in source:
        raise ValueError(f"{old!r} is not a line of the reference")
    space = {"onnx": onnx}
    exec(source.replace(old, new), space)
    return space[reference.__name__]


def named_and_nested(trt, model, shapes, logger):
    smallest, usual, largest = shapes
    builder = trt.Builder(logger)
    flags = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network, config = builder.create_network(flags), builder.create_builder_config()
    parser = trt.OnnxParser(network, logger)
    assert parser.parse(model), "it does not parse"
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 28)
    ranges = builder.create_optimization_profile()
    ranges.set_shape("input", min=smallest, opt=usual, max=largest)
    assert config.add_optimization_profile(ranges) is not None
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    plan = builder.build_serialized_network(network, config)
    assert plan is not None, "no engine"
    return bytes(plan)


def in_an_order_of_its_own(trt, model, shapes, logger):
    builder = trt.Builder(logger)
    profile = builder.create_optimization_profile()
    profile.set_shape("input", tuple(shapes[0]), tuple(shapes[1]), tuple(shapes[2]))
    config = builder.create_builder_config()
    config.add_optimization_profile(profile)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if parser.parse(model):
        plan = builder.build_serialized_network(network, config)
        if plan:
            return bytes(plan)
    raise RuntimeError("the parser or the builder refuses this model")


def reach_of_both_ends(scale, zero_point):
    ends = [(q - zero_point) * scale for q in (0, 255)]
    return max(map(abs, ends)) / 127, 0


def as_a_list(scale, zero_point):
    return [max(zero_point, 255 - zero_point) * scale / 127, 0]


def further_end(scale, zero_point):
    steps = zero_point if zero_point > 127 else 255 - zero_point
    return scale * steps / 127.0, 0


def all_in_one_stream(context, cuda, images):
    stream, images = cuda.Stream(), np.require(images, np.float32, "C")
    most, waiting = context.engine.get_tensor_profile_shape("input", 0)[-1][0], []
    for part in np.split(images, range(most, len(images), most)):
        assert context.set_input_shape("input", part.shape)
        logits = np.zeros(context.get_tensor_shape("logits"), np.float32)
        source, target = cuda.to_device(part), cuda.to_device(logits)
        for name, memory in (("input", source), ("logits", target)):
            context.set_tensor_address(name, int(memory))
        cuda.memcpy_htod_async(source, part, stream)
        context.execute_async_v3(stream.handle)
        cuda.memcpy_dtoh_async(logits, target, stream)
        stream.synchronize()
        source.free()
        target.free()
        waiting.append(logits)
    return np.argmax(np.concatenate(waiting), 1)


def waits_once_for_all_parts(context, cuda, images):
    images, stream = np.ascontiguousarray(images, dtype=np.float32), cuda.Stream()
    most, held = int(context.engine.get_tensor_profile_shape("input", 0)[2][0]), []
    for start in range(0, len(images), most):
        part = images[start : start + most]
        context.set_input_shape("input", part.shape)
        logits = np.empty(tuple(context.get_tensor_shape("logits")), np.float32)
        memory = cuda.mem_alloc(part.nbytes), cuda.mem_alloc(logits.nbytes)
        for name, each in zip(("input", "logits"), memory, strict=True):
            context.set_tensor_address(name, int(each))
        cuda.memcpy_htod_async(memory[0], part, stream)
        context.execute_async_v3(stream.handle)
        cuda.memcpy_dtoh_async(logits, memory[1], stream)
        held.append((logits, *memory))
    stream.synchronize()
    for _, *memory in held:
        for each in memory:
            each.free()
    return np.concatenate([logits for logits, *_ in held]).argmax(1)


def memory_of_the_largest_part(context, cuda, images):
    images = images.astype("float32", order="C")
    rows = min(len(images), context.engine.get_tensor_profile_shape("input", 0)[2][0])
    memory = {
        "input": cuda.mem_alloc(rows * images[0].nbytes),
        "logits": cuda.mem_alloc(rows * 4 * 4),
    }
    for name in memory:
        context.set_tensor_address(name, int(memory[name]))
    stream, classes = cuda.Stream(), []
    for first in range(0, len(images), rows):
        part = images[first : first + rows]
        context.set_input_shape("input", part.shape)
        cuda.memcpy_htod(memory["input"], part)
        context.execute_async_v3(stream.handle)
        stream.synchronize()
        logits = np.empty((len(part), 4), "float32")
        cuda.memcpy_dtoh(logits, memory["logits"])
        classes.extend(logits.argmax(-1))
    del memory
    return np.array(classes)


MOST = 'most = context.engine.get_tensor_profile_shape("input", 0)[2][0]'
WHOLE_PARTS = "range(0, max(len(images) - most, 0) + 1, most)"
FREE = "        device_input.free()\n        device_logits.free()\n"
PARSE = "    if not parser.parse(model):\n        raise ValueError(parser.get_error(0).desc())\n"
BUILT = (
    "    if plan is None:\n"
    "        raise ValueError(\"TensorRT could not build this network: the logger's "
    'messages say why")\n'
)
WRONG = {
    "build-engine": {
        "never parses": edited(PARSE, "", build_engine),
        "does not look at what parse says": edited(
            PARSE, "    parser.parse(model)\n", build_engine
        ),
        "forgets to add the profile": edited(
            "    config.add_optimization_profile(profile)\n", "", build_engine
        ),
        "always begins with a batch of 1": edited(
            "*shapes", "(1, *shapes[0][1:]), shapes[1], shapes[2]", build_engine
        ),
        "gives the largest shape first": edited("*shapes", "*shapes[::-1]", build_engine),
        "names another tensor": edited('"input"', '"images"', build_engine),
        "is weakly typed": edited(
            "1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)", "", build_engine
        ),
        "builds without the configuration": edited(
            "build_serialized_network(network, config)",
            "build_serialized_network(network, builder.create_builder_config)",
            build_engine,
        ),
        "returns the parser's word": edited(
            "return bytes(plan)",
            "return True",
            build_engine,
        ),
        "does not look whether an engine was built": edited(BUILT, "", build_engine),
        "returns nothing where none was built": edited(
            BUILT, "    if plan is None:\n        return None\n", build_engine
        ),
        "asks for no list of steps": edited(
            "    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED\n", "", build_engine
        ),
        "makes a logger of its own": edited(
            "    builder = trt.Builder(logger)\n",
            "    logger = trt.Logger()\n    builder = trt.Builder(logger)\n",
            build_engine,
        ),
    },
    "repair-zero-point": {
        "drops the zero point, keeps the step": keep_the_step,
        "looks at the upper end only": look_at_the_upper_end,
        "spreads the old range over the new steps": spread_the_old_range,
        "moves the integers into int8": shift_into_int8,
    },
    "gpu-classes": {
        "waits after it has read": edited(
            "        stream.synchronize()\n        cuda.memcpy_dtoh(logits, device_logits)\n",
            "        cuda.memcpy_dtoh(logits, device_logits)\n        stream.synchronize()\n",
        ),
        "does not wait for the stream": edited("        stream.synchronize()\n", ""),
        "copies float64": edited(
            "np.ascontiguousarray(images, np.float32)", "np.ascontiguousarray(images)"
        ),
        "copies float32 that is not in one piece": edited(
            "np.ascontiguousarray(images, np.float32)", "images.astype(np.float32)"
        ),
        "never copies the images": edited("        cuda.memcpy_htod(device_input, part)\n", ""),
        "allocates numbers instead of bytes": edited(
            "mem_alloc(part.nbytes)", "mem_alloc(part.size)"
        ),
        "keeps the memory for the next call": edited(
            "        device_logits.free()\n",
            "        globals().setdefault('kept', []).append(device_logits)\n",
        ),
        "holds the memory until the next call": edited(
            "        device_logits.free()\n", "        globals()['held'] = device_logits\n"
        ),
        "copies back in the stream after the wait": edited(
            "cuda.memcpy_dtoh(logits, device_logits)",
            "cuda.memcpy_dtoh_async(logits, device_logits, stream)",
        ),
        "never copies the logits back": edited(
            "        cuda.memcpy_dtoh(logits, device_logits)\n", ""
        ),
        "returns the logits": edited(".argmax(axis=1)", ""),
        "never says the shape": edited(
            '        context.set_input_shape("input", part.shape)\n', ""
        ),
        "never runs the engine": edited("        context.execute_async_v3(stream.handle)\n", ""),
        "takes any number in one call": edited(MOST, "most = len(images)"),
        "takes the largest batch of another profile": edited(MOST, "most = 64"),
        "does the first part only": edited("range(0, len(images), most)", "[0]"),
        "leaves out the last, smaller part": edited("range(0, len(images), most)", WHOLE_PARTS),
        "returns the classes of the last part": edited("np.concatenate(classes)", "classes[-1]"),
        "returns a row per part": edited("np.concatenate(classes)", "classes"),
        "frees the memory of the last part only": edited(
            FREE,
            "        globals().setdefault('parts', []).append((device_input, device_logits))\n",
        ),
    },
}

WRONG["repair-zero-point"] |= {
    "covers a little less": lambda scale, zero: (0.9999 * scale * max(zero, 255 - zero) / 127, 0),
    "covers a little more": lambda scale, zero: (1.0001 * scale * max(zero, 255 - zero) / 127, 0),
}


def shift_the_images(context, cuda, images):
    images += 1e-3
    return gpu_classes(context, cuda, images)


WRONG["gpu-classes"] |= {
    "changes the images": shift_the_images,
    "changes images that need no copy": edited(
        "    most = context", "    images -= np.float32(1e-3)\n    most = context"
    ),
    "whole parts only, of which there may be none": edited(
        "range(0, len(images), most)", "range(0, len(images) - most + 1, most)"
    ),
    "whole parts only, and an empty row where there is none": edited(
        "range(0, len(images), most):",
        "range(0, len(images) - most + 1, most) if len(images) >= most else "
        "classes.append(np.zeros(0, int)) or ():",
    ),
}


def by_insertion(model, zero_points):
    position = 0
    while position < len(model.graph.node):
        node = model.graph.node[position]
        if node.op_type == "QuantizeLinear" and node.input[2] in zero_points:
            positive = node.input[0] + "_not_negative_" + str(position)
            model.graph.node.insert(
                position, onnx.helper.make_node("Relu", [node.input[0]], [positive])
            )
            model.graph.node[position + 1].input[0] = positive
            position += 1
        position += 1
    return model


def into_a_new_model(model, zero_points):
    copied = onnx.ModelProto.FromString(model.SerializeToString())
    copied.graph.ClearField("node")
    for number, old in enumerate(model.graph.node):
        node = (
            copied.graph.node.add()
            if old.op_type != "QuantizeLinear" or old.input[2] not in zero_points
            else None
        )
        if node is None:
            copied.graph.node.append(
                onnx.helper.make_node("Relu", [old.input[0]], [f"relu{number}"], name=f"r{number}")
            )
            node = copied.graph.node.add()
            node.CopyFrom(old)
            node.input[0] = f"relu{number}"
        else:
            node.CopyFrom(old)
    return copied


def by_splitting(lines, names):
    types = {}
    for line in lines:
        head, metadata = line.split(", Metadata: ")
        nodes = metadata.strip("[]").split("][")
        if head.split("LayerType: ")[1].startswith("kgen"):
            continue
        for node in nodes:
            name = node.removeprefix("ONNX Layer: ")
            if name in names:
                types[name] = head.split("Inputs: ")[1].split("Datatype: ")[1].split(",")[0]
    return types


def a_name_at_a_time(lines, names):
    import re

    steps = [line for line in lines if "LayerType: kgen," not in line]
    own = {name: [line for line in steps if f": {name}]" in line] for name in names}
    return {
        name: re.findall(r"Datatype: (\w+)", found[0])[0] for name, found in own.items() if found
    }


KGEN = ' and "LayerType: kgen" not in line'
READS = r'r"Inputs: .*?Datatype: (\w+)"'
WRONG["layer-types"] = {
    "counts generated kernels": edited(KGEN, "", layer_types),
    "takes the first step that names it": edited(
        f'if f"[ONNX Layer: {{name}}]" in line{KGEN}',
        'if f"[ONNX Layer: {name}]" in line and name not in types',
        layer_types,
    ),
    "takes a name for another's beginning": edited(
        'f"[ONNX Layer: {name}]"', 'f"[ONNX Layer: {name}"', layer_types
    ),
    "reads what is written": edited("Inputs: ", "Outputs: ", layer_types),
    "reads the weights": edited("Inputs: ", "Constants: ", layer_types),
    "reads the last tensor": edited(READS, r'r".*Datatype: (\w+).*Constants: "', layer_types),
    "asks for correlations only": edited(
        KGEN, ' and "LayerType: correlation" in line', layer_types
    ),
    "names all": edited("types = {}", 'types = dict.fromkeys(names, "Float")', layer_types),
    "returns a list": edited("return types", "return list(types.values())", layer_types),
    "returns nothing": edited("    return types\n", "", layer_types),
}
RELU_AT = "node.input[2] in zero_points"
WRONG["put-relus-back"] = {
    "before every quantizer": edited(f" and {RELU_AT}", "", put_relus_back),
    "looks for the scale's name": edited(RELU_AT, "node.input[1] in zero_points", put_relus_back),
    "does not connect the quantizer": edited(
        "            node.input[0] = relu.output[0]\n", "", put_relus_back
    ),
    "after the quantizer": edited(
        "            nodes.append(relu)\n            node.input[0] = relu.output[0]\n        "
        "nodes.append(node)\n",
        "            node.input[0] = relu.output[0]\n            nodes.append(node)\n            "
        "nodes.append(relu)\n"
        "        else:\n            nodes.append(node)\n",
        put_relus_back,
    ),
    "forgets the other nodes": edited(
        "        nodes.append(node)\n", "            nodes.append(node)\n", put_relus_back
    ),
    "returns the graph": edited("return model", "return model.graph", put_relus_back),
    "returns nothing": edited("    return model\n", "", put_relus_back),
    "behind the dequantizer": edited('"QuantizeLinear"', '"DequantizeLinear"', put_relus_back),
}

RIGHT = {
    "layer-types": {"by splitting": by_splitting, "a name at a time": a_name_at_a_time},
    "put-relus-back": {"by insertion": by_insertion, "into a new model": into_a_new_model},
    "build-engine": {
        "named and nested": named_and_nested,
        "in an order of its own": in_an_order_of_its_own,
        "asks the network for the input's name": edited(
            '"input"', "network.get_input(0).name", build_engine
        ),
    },
    "repair-zero-point": {
        "the reach of both ends": reach_of_both_ends,
        "the further end in steps": further_end,
        "a list": as_a_list,
    },
    "gpu-classes": {
        "all in one stream": all_in_one_stream,
        "waits once, for all parts": waits_once_for_all_parts,
        "memory of the largest part, let go by del": memory_of_the_largest_part,
        "by execute_v2": edited(
            "        context.execute_async_v3(stream.handle)\n",
            "        context.execute_v2([int(device_input), int(device_logits)])\n",
        ),
        "memory let go by leaving the function": edited(FREE, ""),
    },
}
