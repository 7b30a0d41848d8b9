"""The claims that a notebook makes, read from its cells: {claim id: (sentence, bound)}; {…} is
what a run fills in.
"""

import ast
import re

BOUNDS = {"at_least": "at least", "at_most": "at most", "above": "above", "below": "below"}


def claims_of(cells):
    claims = {}
    for cell in cells:
        tree = ast.parse(re.sub("^[%!].*", "", cell.source, flags=re.MULTILINE))
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and getattr(call.func, "id", None) == "claim":
                name, sentence = map(_text, call.args[:2])
                claims[name] = sentence, _bound(call)
    return claims


def _bound(call):
    """What the call says of its number, such as "at least 0.9 and at most 1.1"."""
    words = [
        f"{BOUNDS[word.arg]} {ast.unparse(word.value)}"
        for word in call.keywords
        if word.arg in BOUNDS
    ]
    return " and ".join(words)


def _text(node):
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else _text(part.value)
            for part in node.values
        )
    return f"{{{ast.unparse(node)}}}"
