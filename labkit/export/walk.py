"""Find every node or tensor of a model, also those inside branches, loops and functions."""

from google.protobuf.message import Message
from onnx import TensorProto


def inside(message, kind):
    """Yield every message of one class inside a protobuf message, however deep, itself included.

    message  such as a ModelProto or a GraphProto
    kind     the class, such as `NodeProto` or `TensorProto`; tensors are not searched further
    """
    if isinstance(message, kind):
        yield message
    fields = () if isinstance(message, TensorProto) else message.ListFields()
    for field, value in fields:
        if field.message_type:
            messages = [value] if isinstance(value, Message) else value
            for inner in messages:
                yield from inside(inner, kind)
