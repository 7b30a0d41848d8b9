"""Every graph, node and tensor of a model, also those inside branches, loops and functions."""

from labkit.errors import LabError

MOST_NODES = 1_000_000  # after functions are written out; the largest networks in use have some thousands


def graphs(holder):
    """A GraphProto or FunctionProto and every graph in the attributes of its nodes, however deep."""
    yield holder
    for node in holder.node:
        for inner in inner_graphs(node):
            yield from graphs(inner)


def inner_graphs(node):
    """The branches or the body of one node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def scopes(model):
    """(holder, {domain: opset version}): the main graph and every function, each with the operator sets it uses."""
    for holder, owner in ((model.graph, model), *((function, function) for function in model.functions)):
        yield holder, {opset.domain: opset.version for opset in owner.opset_import}


def tensors(model):
    """Every TensorProto: initializers and tensors in attributes. Sparse ones are given as their values and indices."""
    for holder, _ in scopes(model):
        for graph in graphs(holder):
            yield from getattr(graph, "initializer", ())
            for node in graph.node:
                for attribute in node.attribute:
                    if attribute.HasField("t"):
                        yield attribute.t
                    yield from attribute.tensors


def names(model):
    """Every name and key the checks go by: of operators, domains, tensors, values and external data."""
    for holder, versions in scopes(model):
        yield from versions
        for graph in graphs(holder):
            for node in graph.node:
                yield from (node.op_type, node.domain, node.name, *node.input, *node.output)
                yield from (attribute.name for attribute in node.attribute)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        yield from (value.name, *(side.dim_param for side in value.type.tensor_type.shape.dim))
    for function in model.functions:
        yield from (function.domain, function.name, *function.input, *function.output)
    for tensor in tensors(model):
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))


def has_sparse(model):
    """Whether any tensor is stored sparse: few values that claim to be many."""
    for holder, _ in scopes(model):
        for graph in graphs(holder):
            attributes = [attribute for node in graph.node for attribute in node.attribute]
            if any(a.HasField("sparse_tensor") or a.sparse_tensors for a in attributes):
                return True
            if getattr(graph, "sparse_initializer", ()):
                return True
    return False


def written_out(model):
    """How many nodes the model has when every function call is replaced by its body; LabError when one calls itself."""
    functions = {(function.domain, function.name): function for function in model.functions}
    known, being_counted = {}, set()

    def count(holder):
        return sum(1 + count_call((node.domain, node.op_type)) + sum(map(count, inner_graphs(node)))
                   for node in holder.node)  # fmt: skip

    def count_call(key):
        if key not in functions:
            return 0
        if key in being_counted:
            raise LabError(
                "A function calls itself.", expected="functions that end", found=f"a cycle through {key[1]!r}"
            )
        if key not in known:
            being_counted.add(key)
            known[key] = count(functions[key])
            being_counted.discard(key)
        return known[key]

    return count(model.graph)
