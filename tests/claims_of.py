"""The claims that a notebook makes, read from its cells: {claim id: (sentence, rule)}; {…} is what a run fills in."""

import ast
import re


def claims_of(cells):
    found = {}
    for cell in cells:
        tree = ast.parse(re.sub("^[%!].*", "", cell.source, flags=re.MULTILINE))
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and getattr(call.func, "id", None) == "claim":
                name, sentence = map(_text, call.args[:2])
                (rule,) = [word.value for word in call.keywords if word.arg == "holds_if"]
                found[name] = sentence, ast.unparse(rule.body if isinstance(rule, ast.Lambda) else rule)
    return found


def _text(node):
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else _text(part.value) for part in node.values)
    return f"{{{ast.unparse(node)}}}"
