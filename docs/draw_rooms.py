"""Draws the pictures of docs/architecture.md from the import statements of the code: ``make drawings``.

``rooms.svg`` has every room in the order that import-linter holds (``pyproject.toml``), an arrow for every room that it
imports from. ``training.svg`` and ``deployment.svg`` have the modules that an observation and a policy pass through, an
arrow for every import among them. Nothing is drawn by hand: a room or an arrow that is not in the code is not in the
picture. Run with ``--check``, it says whether the pictures are up to date.
"""

import argparse
import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "carebn"

# The way of an observation through training, and of a policy through deployment: the files to read, in this order.
WAYS: dict[str, list[list[str]]] = {
    "training": [
        ["training.environment", "algorithm.replay"],
        ["algorithm.td3", "network.inference"],
        ["network.actor", "network.critic"],
        ["network.encoder", "network.layer", "network.decoder"],
        ["norm.care", "neuron.lif"],
        ["router"],
        ["kernels.stack"],
    ],
    "deployment": [],
}
BOX, ROW, GAP, MARGIN = 128, 74, 22, 20


def modules() -> dict[str, Path]:
    """Every module of the package by its name without ``carebn.``; a room's own ``__init__`` under the room's name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix("__init__").rstrip(".")
        if name:
            found[name] = path
    return found


def imports() -> dict[str, set[str]]:
    """Which modules each module imports, lazily or not."""
    known, found = modules(), defaultdict(set)
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text())):
            for target in _targets(node):
                while target and target not in known:
                    target = target.rpartition(".")[0]  # from a module: the name is inside it
                if target and target != name:
                    found[name].add(target)
    return found


def _targets(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Import):
        return [alias.name.removeprefix("carebn.") for alias in node.names if alias.name.startswith("carebn.")]
    if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "carebn":
        base = node.module.removeprefix("carebn").lstrip(".")
        return [f"{base}.{alias.name}".lstrip(".") for alias in node.names]
    return []


def layers() -> list[list[str]]:
    """The order of rooms, highest first, as import-linter has it."""
    contracts = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [contract for contract in contracts if contract["type"] == "layers"]
    there = {name.split(".")[0] for name in modules()}
    rows = [[room.strip(" ()").removeprefix("carebn.") for room in re.split("[|:]", row)] for row in contract["layers"]]
    return [row for names in rows if (row := [room for room in names if room in there])]


def draw(rows: list[list[str]], arrows: set[tuple[str, str]]) -> str:
    """Boxes in rows, and a curve for every arrow, from the lower edge of one to the upper edge of another."""
    widest = max(map(len, rows))
    width = widest * BOX + (widest - 1) * GAP + 2 * MARGIN
    height = len(rows) * ROW + MARGIN
    places = {}
    for i, row in enumerate(rows):
        left = (width - len(row) * BOX - (len(row) - 1) * GAP) / 2
        for j, name in enumerate(row):
            places[name] = left + j * (BOX + GAP), MARGIN + i * ROW
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="13">',
        "<style>path{fill:none;stroke:#8899aa;stroke-width:1}rect{fill:#eef3f8;stroke:#557}text{fill:#123}"
        "@media(prefers-color-scheme:dark){rect{fill:#233040;stroke:#89a}text{fill:#dde}}</style>",
    ]
    for source, target in sorted(arrows):
        (x0, y0), (x1, y1) = places[source], places[target]
        x0, y0, x1 = x0 + BOX / 2, y0 + 32, x1 + BOX / 2
        bend = (y1 - y0) / 2 if abs(y1 - y0) < 2 * ROW else ROW / 2
        far = abs(y1 - y0) > 1.5 * ROW and abs(x1 - x0) < BOX / 2
        side = (BOX * 0.75 if (sum(map(ord, source + target)) % 2) else -BOX * 0.75) if far else 0
        lines.append(
            f'<path d="M{x0:g} {y0:g}C{x0 + side:g} {y0 + bend:g} {x1 + side:g} {y1 - bend:g} {x1:g} {y1:g}"/>'
        )
    for name, (x, y) in places.items():
        lines.append(f'<rect x="{x:g}" y="{y:g}" width="{BOX}" height="32" rx="6"/>')
        lines.append(f'<text x="{x + BOX / 2:g}" y="{y + 20:g}" text-anchor="middle">{escape(name)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def pictures() -> dict[str, str]:
    graph, rooms = imports(), layers()
    room_of = {room for row in rooms for room in row}
    between = {
        (a.split(".")[0], b.split(".")[0]) for a, targets in graph.items() for b in targets
    }  # fmt: skip
    found = {"rooms.svg": draw(rooms, {(a, b) for a, b in between if a != b and {a, b} <= room_of})}
    for name, rows in WAYS.items():
        shown = {module for row in rows for module in row}
        missing = shown - modules().keys()
        if missing:
            raise SystemExit(f"{', '.join(sorted(missing))} is in a picture of docs/draw_rooms.py and not in the code")
        found[f"{name}.svg"] = draw(rows, {(a, b) for a in shown for b in graph[a] & shown})
    return found


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
