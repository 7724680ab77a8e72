"""The imports of the package, read from its source: files, packages, faces."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import layerdag

PACKAGE = Path(str(layerdag.__file__)).parent
ROOT = PACKAGE.parent


@cache
def sources() -> dict[str, ast.Module]:
    """Return the syntax tree of every file of the package, by dotted name."""
    return {dotted(path): _tree(path) for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def dotted(path: Path) -> str:
    """Return the dotted name of a file of the package; that of its folder for a face."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def packages() -> frozenset[str]:
    """Return the folders of the package, by dotted name."""
    return frozenset(dotted(path) for path in PACKAGE.rglob("__init__.py"))


@cache
def imported(tree: ast.AST) -> tuple[tuple[str, str], ...]:
    """Return (module, name) of each import of the package, also inside functions.

    What is imported for annotations only does not count.
    """
    return tuple(_imported(tree))


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("layerdag"):
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((a.name, "") for a in node.names if a.name.startswith("layerdag"))
        yield from _imported(node)


def files_of(name: str, tree: ast.AST) -> set[str]:
    """Return the files, by dotted name, that the file ``name`` imports."""
    known = set(sources())
    found = {f"{m}.{n}" if f"{m}.{n}" in known else m for m, n in imported(tree)}
    return (found & known) - {name}


def files_named(name: str, tree: ast.AST) -> set[str]:
    """Return the files that the file ``name`` imports by a string, or for annotations only."""
    known, found = set(sources()), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            module = node.value.partition(":")[0]
            found |= {module, module.rpartition(".")[0]}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return (found & known) - {name}


def package_of(name: str) -> str:
    """Return the folder that a file lies in; a face lies in its own folder."""
    return name if name in packages() else name.rpartition(".")[0]


def face(package: str) -> tuple[str, ...]:
    """Return what a package hands out."""
    for node in _tree(ROOT.joinpath(*package.split("."), "__init__.py")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return tuple(ast.literal_eval(node.value))
    return ()
