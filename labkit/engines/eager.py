"""eager: torch as it is, one operator after the other."""

import torch


def load(model, example, *, precision):
    """See `labkit.engines.load`."""
    return serve(model.to(example.device).eval(), example.device.type, precision)


def serve(model, device_type, precision):
    """Run a model without gradients; small formats by autocast, which keeps sensitive operators in fp32."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]

    def call(batch):
        with torch.inference_mode(), torch.autocast(device_type, dtype=dtype, enabled=precision != "fp32"):
            return model(batch).float()

    return call
