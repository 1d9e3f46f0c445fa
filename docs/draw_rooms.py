"""Draws the pictures of docs/architecture.md from the import statements of the code: ``make drawings``.

``rooms.svg`` is a square: a row and a column for each room in the order that import-linter holds (``pyproject.toml``),
and in each field how many modules of the row's room import from the column's. One direction means that all of them are
on one side of the diagonal. ``training.svg`` and ``deployment.svg`` have the modules that an observation and a policy
pass through, a line for every import among them that does not follow from others. Nothing is drawn by hand: what is
not in the code is not in the picture. Run with ``--check``, it says whether the pictures are up to date.
"""

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "carebn"

# The way of an observation through training, and of a policy through deployment: the files to read, in this order.
WAYS: dict[str, list[list[str]]] = {
    "training": [
        ["training.loop"],
        ["training.run_directory", "training.stepping", "training.evaluating"],
        ["training.checkpoint", "training.run_state"],
        ["training.build"],
        ["algorithm", "training.environment"],
        ["algorithm.td3"],
        ["algorithm.replay", "algorithm.base", "network.critic"],
        ["network.inference"],
        ["network.actor"],
        ["network.encoder", "network.layer", "network.decoder"],
        ["norm", "neuron"],
        ["norm.care", "neuron.lif"],
        ["router"],
        ["kernels.fused", "kernels.stack", "kernels.act"],
    ],
    "deployment": [
        ["commands.export"],
        ["deploy.export"],
        ["deploy.nir_export", "deploy.onnx_export", "deploy.integer_c", "deploy.c_export", "deploy.parity"],
        ["deploy.integerise", "deploy.qat"],
        ["deploy.integer", "deploy.quantise"],
        ["deploy.origin", "deploy.folding", "deploy.runtime"],
        ["training.policy", "deploy.graph", "deploy.compiled"],
        ["neuron.tracing", "norm.folding"],
        ["equations"],
    ],
}
BOX, ROW, GAP, MARGIN = 150, 66, 24, 16
FIELD, NAMES = 34, 150  # of the square
STYLE = (
    "<style>path{fill:none;stroke:#8899aa;stroke-width:1.2}rect{fill:#eef3f8;stroke:#557}text{fill:#123}"
    ".own{fill:#c9d6e4}.none{fill:none;stroke:#c3ccd6}"
    "@media(prefers-color-scheme:dark){rect{fill:#233040;stroke:#89a}text{fill:#dde}.own{fill:#445a70}.none{fill:none;"
    "stroke:#445}}</style>"
)


def modules() -> dict[str, Path]:
    """Every module of the package by its name without ``carebn.``; a room's own ``__init__`` under the room's name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix("__init__").rstrip(".")
        if name:
            found[name] = path
    return found


def imports() -> dict[str, set[str]]:
    """Which modules each module imports, lazily or not; a name that a room hands on counts for where it is from."""
    known = modules()
    trees = {name: ast.parse(path.read_text()) for name, path in known.items()}
    handed_on = {
        f"{room}.{alias.asname or alias.name}": f"{_base(node)}.{alias.name}"
        for room, tree in trees.items()
        if known[room].name == "__init__.py"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found: dict[str, set[str]] = {name: set() for name in known}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            for target in _targets(node):
                place = handed_on.get(target, target)
                while place and place not in known:
                    place = place.rpartition(".")[0]  # a name inside of a module
                if place and place != name:
                    found[name].add(place)
    return found


def _base(node: ast.ImportFrom) -> str:
    return (node.module or "").removeprefix("carebn").lstrip(".")


def _targets(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Import):
        return [alias.name.removeprefix("carebn.") for alias in node.names if alias.name.startswith("carebn.")]
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "carebn":
        return [f"{_base(node)}.{alias.name}".lstrip(".") for alias in node.names]
    return []


def layers() -> list[list[str]]:
    """The order of rooms, highest first, as import-linter has it."""
    contracts = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [contract for contract in contracts if contract["type"] == "layers"]
    there = {name.split(".")[0] for name in modules()}
    rows = [[room.strip(" ()").removeprefix("carebn.") for room in re.split("[|:]", row)] for row in contract["layers"]]
    return [row for names in rows if (row := [room for room in names if room in there])]


def _picture(width: float, height: float, lines: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="sans-serif" font-size="13">'
    )
    return "\n".join([head, STYLE, *lines, "</svg>"]) + "\n"


def square(graph: dict[str, set[str]], rooms: list[list[str]]) -> str:
    """Who imports from whom; files of one layer that stand beside each other are one row."""
    names = [row[0] if len(row) == 1 else "shared files" for row in rooms]
    row_of = {room: i for i, row in enumerate(rooms) for room in row}
    counts: Counter[tuple[int, int]] = Counter()
    for module, targets in graph.items():
        mine = row_of.get(module.split(".")[0])
        theirs = {row_of.get(target.split(".")[0]) for target in targets}
        counts.update((mine, there) for there in theirs if mine is not None and there is not None and there != mine)
    lines = []
    for i, name in enumerate(names):
        y = NAMES + i * FIELD
        lines.append(f'<text x="{NAMES - 8}" y="{y + 22}" text-anchor="end">{escape(name)}</text>')
        lines.append(
            f'<text x="0" y="0" transform="translate({NAMES + i * FIELD + 21} {NAMES - 8}) rotate(-60)">'
            f"{escape(name)}</text>"
        )
        for j in range(len(names)):
            kind = ' class="own"' if i == j else "" if counts[i, j] else ' class="none"'
            x = NAMES + j * FIELD
            lines.append(f'<rect{kind} x="{x}" y="{y}" width="{FIELD}" height="{FIELD}"/>')
            if counts[i, j]:
                lines.append(f'<text x="{x + FIELD / 2:g}" y="{y + 22}" text-anchor="middle">{counts[i, j]}</text>')
    size = NAMES + len(names) * FIELD + 60
    return _picture(size, size - 60 + MARGIN, lines)


def way(graph: dict[str, set[str]], rows: list[list[str]]) -> str:
    """Boxes in rows, and a curve for every import among them that no chain of others stands for."""
    shown = {name for row in rows for name in row}
    within = {name: graph[name] & shown for name in shown}
    lines = []
    widest = max(map(len, rows))
    width = widest * BOX + (widest - 1) * GAP + 2 * MARGIN
    places = {}
    for i, row in enumerate(rows):
        left = (width - len(row) * BOX - (len(row) - 1) * GAP) / 2
        for j, name in enumerate(row):
            places[name] = left + j * (BOX + GAP), MARGIN + i * ROW
    for source in sorted(within):
        for target in sorted(within[source]):
            if any(target in _reached(within, other) for other in within[source] - {target}):
                continue
            (x0, y0), (x1, y1) = places[source], places[target]
            x0, y0, x1 = x0 + BOX / 2, y0 + 32, x1 + BOX / 2
            if y1 < y0:  # beside each other
                y0, y1 = y0 - 16, y1 + 16
            bend = (y1 - y0) / 2
            lines.append(f'<path d="M{x0:g} {y0:g}C{x0:g} {y0 + bend:g} {x1:g} {y1 - bend:g} {x1:g} {y1:g}"/>')
    for name, (x, y) in places.items():
        lines.append(f'<rect x="{x:g}" y="{y:g}" width="{BOX}" height="32" rx="6"/>')
        lines.append(f'<text x="{x + BOX / 2:g}" y="{y + 20:g}" text-anchor="middle">{escape(name)}</text>')
    return _picture(width, len(rows) * ROW, lines)


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    found, waiting = set(), [start]
    while waiting:
        for target in graph[waiting.pop()] - found:
            found.add(target)
            waiting.append(target)
    return found


def pictures() -> dict[str, str]:
    graph = imports()
    shown = {module for rows in WAYS.values() for row in rows for module in row}
    if not shown <= graph.keys():
        missing = ", ".join(sorted(shown - graph.keys()))
        raise SystemExit(f"docs/draw_rooms.py shows {missing}, which is not in the code")
    return {"rooms.svg": square(graph, layers())} | {f"{name}.svg": way(graph, rows) for name, rows in WAYS.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a picture is out of date")
    check = parser.parse_args().check
    stale = []
    for name, text in pictures().items():
        path = HERE / name
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if not check:
                path.write_text(text)
    if stale:
        print(f"{'out of date' if check else 'drawn'}: {', '.join(stale)}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
