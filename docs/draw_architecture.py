"""Draws the package: `python docs/draw_architecture.py` writes the picture in docs/architecture.md
anew.

The floors are those of the table below the picture; the arrows are the imports found in the code.
An arrow that follows from two others is left out, so that the picture stays readable.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- drawn by docs/draw_architecture.py -->\n", "<!-- end of the drawing -->"


def floors():
    """{floor: [module or folder]} from the highest floor to the lowest, as the table of the page
    states them.
    """
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (course|topics|tools) \| (.+) \|$", page, flags=re.MULTILINE)
    return {floor: re.findall(r"`(\w+)`", row) for floor, row in rows}


def imports():
    """{module or folder: the others it imports}."""
    package, found = ROOT / "labkit", {}
    for path in package.rglob("*.py"):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "labkit":
                names = (
                    [f"labkit.{name.name}" for name in node.names]
                    if node.module == "labkit"
                    else [node.module]
                )
                found.setdefault(room, set()).update(name.split(".")[1] for name in names)
    return {room: targets - {room} for room, targets in found.items()}


def reachable(room, graph):
    """All that a room imports, directly or through others."""
    seen, waiting = set(), [room]
    while waiting:
        new = graph.get(waiting.pop(), set()) - seen
        seen |= new
        waiting += new
    return seen


def needed(graph):
    """The arrows that do not follow from two others."""
    for room, targets in sorted(graph.items()):
        for target in sorted(targets):
            if not any(target in reachable(other, graph) for other in targets - {target}):
                yield room, target


def drawing():
    """The package as a Mermaid diagram."""
    lines = ["```mermaid", "flowchart TD"]
    for floor, rooms in floors().items():
        lines.append(f"    subgraph {floor}")
        lines += [f"        {room}" for room in rooms]
        lines.append("    end")
    lines += [f"    {room} --> {target}" for room, target in needed(imports())]
    return "\n".join([*lines, "```\n"])


def redrawn(text):
    """The page with the drawing made anew."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + drawing() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
