"""Count and draw the structure of the package from its imports.

    python tools/structure.py                                # figures of this checkout as JSON
    python tools/structure.py OTHER_CHECKOUT --svg rooms.svg # and a picture of its rooms

A room is what stands directly in ``layerdag/``. An arrow leads from a room or module to one that it
imports, also inside functions, but not only for annotations; a name that a room hands out counts as
the module that defines it. A floor stands above all that it imports; circles share one.
"""

import argparse
import ast
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[1]


def modules(root: Path) -> dict[str, Path]:
    """Return the file of each module, by dotted name."""
    files = sorted((root / "layerdag").rglob("*.py"))
    return {_dotted(path.relative_to(root)): path for path in files}


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each import of the package's own modules."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("layerdag"):
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((a.name, "") for a in node.names if a.name.startswith("layerdag"))
        yield from imports(node)


@cache
def handed_out(init: Path) -> Mapping[str, str]:
    """Return the module that defines each name of a room, relative to the room."""
    stub = init.with_suffix(".pyi")
    if not stub.exists():
        return {}
    nodes = [n for n in ast.parse(stub.read_text()).body if isinstance(n, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in nodes for alias in node.names}


def graph(root: Path) -> nx.DiGraph:
    """Return the modules with an arrow to each module that they import."""
    known = modules(root)
    found = nx.DiGraph()
    found.add_nodes_from(known)
    for name, path in known.items():
        for module, what in imports(ast.parse(path.read_text())):
            target = _target(known, module, what)
            if target in known and target != name:
                found.add_edge(name, target)
    return found


def _target(known: Mapping[str, Path], module: str, name: str) -> str:
    """Return the module that an import ends at."""
    while name and f"{module}.{name}" not in known and module in known:
        inner = handed_out(known[module]).get(name)
        if inner is None:
            return module
        module = f"{module}.{inner}"
    return f"{module}.{name}" if f"{module}.{name}" in known else module


def rooms(found: nx.DiGraph) -> nx.DiGraph:
    """Return what stands directly in the package, with its arrows."""
    top = nx.DiGraph()
    room = {name: ".".join(name.split(".")[1:2]) or "layerdag" for name in found}
    top.add_nodes_from(room.values())
    top.add_edges_from(
        (room[a], room[b])
        for a, b in found.edges
        if room[a] != room[b] and "layerdag" not in (room[a], room[b])
    )
    return top


def floors(top: nx.DiGraph) -> dict[str, int]:
    """Return the floor of each room, from 1; rooms of a circle share one."""
    circles = nx.condensation(top)
    level: dict[int, int] = {}
    for node in reversed(list(nx.topological_sort(circles))):
        level[node] = 1 + max((level[below] for below in circles.successors(node)), default=0)
    return {name: level[circles.graph["mapping"][name]] for name in top}


def figures(root: Path) -> dict[str, object]:
    """Return the counts of a checkout."""
    found, files = graph(root), modules(root)
    top = rooms(found)
    inside = {path.parent for path in files.values()}
    siblings = {
        str(folder.relative_to(root)): sum(
            (item.suffix == ".py" and not item.stem.startswith("__")) or item in inside
            for item in folder.iterdir()
        )
        for folder in inside
    }
    circles = [c for c in nx.strongly_connected_components(found) if len(c) > 1]
    most = sorted(siblings.items(), key=lambda item: -item[1])[:4]
    return {
        "modules": sum(path.stem != "__init__" for path in files.values()),
        "folders": len(inside),
        "most siblings": dict(most),
        "rooms": top.number_of_nodes() - 1,
        "arrows between rooms": top.number_of_edges(),
        "rooms in circles": sorted(
            n for c in nx.strongly_connected_components(top) if len(c) > 1 for n in c
        ),
        "modules that import the front door": sum(
            a != "layerdag" for a, _ in found.in_edges("layerdag")
        ),
        "floors": max(floors(top).values()),
        "arrows between modules": found.number_of_edges(),
        "circles of modules": [sorted(c) for c in circles],
    }


def svg(root: Path) -> str:
    """Return a picture: rooms on their floors, the area of a room by its lines, arrows down."""
    found, files = graph(root), modules(root)
    top = rooms(found)
    top.remove_node("layerdag")
    level = floors(top)
    lines = dict.fromkeys(top, 0)
    for name, path in files.items():
        if name.count(".") and name.split(".")[1] in lines:
            lines[name.split(".")[1]] += len(path.read_text().splitlines())
    place, height = {}, 62 * max(level.values()) + 10
    for floor in range(1, max(level.values()) + 1):
        row = sorted(name for name in top if level[name] == floor)
        sizes = [max(64.0, 2.3 * lines[name] ** 0.5) for name in row]
        left = 450 - (sum(sizes) + 14 * (len(row) - 1)) / 2
        for name, wide in zip(row, sizes, strict=True):
            place[name] = (left, height - 62 * floor, wide)
            left += wide + 14
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {height}" '
        'font-family="sans-serif" text-anchor="middle">',
        f'<rect width="900" height="{height}" fill="#fff"/>',
    ]
    for a, b in top.edges:
        (x0, y0, w0), (x1, y1, w1) = place[a], place[b]
        color = "#0072b2" if level[a] > level[b] else "#d55e00"
        parts.append(
            f'<line x1="{x0 + w0 / 2:.0f}" y1="{y0 + 34}" x2="{x1 + w1 / 2:.0f}" y2="{y1}" '
            f'stroke="{color}" stroke-opacity="0.3"/>'
        )
    for name, (x, y, wide) in place.items():
        middle, size = f"{x + wide / 2:.0f}", f"{lines[name] / 1000:.1f} k lines"
        parts += [
            f'<rect x="{x:.0f}" y="{y}" width="{wide:.0f}" height="34" rx="4" fill="#fff" '
            'stroke="#333"/>',
            f'<text x="{middle}" y="{y + 15}" font-size="11">{name}</text>',
            f'<text x="{middle}" y="{y + 28}" font-size="9" fill="#666">{size}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Print the figures; draw the rooms if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--svg", type=Path, help="where to draw the rooms")
    args = parser.parse_args()
    print(json.dumps(figures(args.checkout), indent=1))
    if args.svg:
        args.svg.write_text(svg(args.checkout))


if __name__ == "__main__":
    main()
