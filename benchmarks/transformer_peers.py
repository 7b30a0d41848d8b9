"""What a user would take instead: ONNX Runtime's optimizer and its INT8; NNCF in OpenVINO;
torchao in torch.
"""

import copy
import importlib.util

import torch

from labkit import engines, export, text


def peers(figures, work, quality, race):
    """Ours in INT8 against each of them, in speed and in what they keep."""
    if work.quick:
        return
    from onnxruntime.quantization import quantize_dynamic

    exact = text.encoded(work.rows, work.network)
    optimized = optimized_for_bert(work.plain)
    optimized.save_model_to_file(str(work.folder / "peer.onnx"))
    quantize_dynamic(work.folder / "peer.onnx", work.folder / "peer-int8.onnx")
    files = {"peer_optimizer": "peer.onnx", "peer_optimizer_int8": "peer-int8.onnx"}
    arms = {"int8": work.served("onnxruntime", work.int8, "int8")}
    for name, file in files.items():
        opened = export.session(work.folder / file, threads=1)
        arms[name] = lambda x, opened=opened: torch.from_numpy(
            opened.run(None, {"tokens": x.numpy()})[0]
        )
    if importlib.util.find_spec("nncf"):
        arms["peer_nncf"] = nncf_int8(work)
    if importlib.util.find_spec("torchao"):
        arms["peer_torchao"] = torchao_int8(work)
    for name, answer in list(arms.items())[1:]:
        quality(figures, name, exact, text.encoded(work.rows, answer))
    for batch in (1, 8, 32):
        race(
            figures,
            work,
            {"ours, int8": arms["int8"], **{name: arms[name] for name in list(arms)[1:]}},
            batch,
        )


def optimized_for_bert(path):
    """What ONNX Runtime's optimizer for transformers makes of a file."""
    from onnxruntime.transformers.optimizer import optimize_model

    return optimize_model(str(path), model_type="bert", num_heads=12, hidden_size=384, opt_level=0)


def nncf_int8(work):
    """NNCF's post-training INT8 of the same file, in OpenVINO."""
    import nncf
    import openvino

    core = engines.get("openvino")._only_core(openvino)
    batches = [text.padded(work.known[at : at + 16]).numpy() for at in range(0, 256, 16)]
    kind = nncf.ModelType.TRANSFORMER
    made = nncf.quantize(core.read_model(work.plain), nncf.Dataset(batches), model_type=kind)
    request = core.compile_model(made, "CPU", {"INFERENCE_NUM_THREADS": 1}).create_infer_request()
    return lambda x: torch.from_numpy(request.infer([x.numpy()])[0].copy())


def torchao_int8(work):
    """torchao's INT8 with a grid per token, found in the call, compiled as its documentation
    says.
    """
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    network = copy.deepcopy(work.network).eval()
    quantize_(network, Int8DynamicActivationInt8WeightConfig())
    return torch.inference_mode()(torch.compile(network, dynamic=True))
