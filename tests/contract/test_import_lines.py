"""Every line that imports from the package resolves: code, scripts in strings, and pages."""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("layerdag", "tests", "benchmarks", "data", "docs", "examples", "tools")
IMPORT = re.compile(r"^[>.\s]*((?:from layerdag[\w.]* )?import (?:\([^)]*\)|[^\n(]+))", re.M)


def _pages() -> list[Path]:
    inside = [p for f in FOLDERS for end in ("*.py", "*.md") for p in (ROOT / f).rglob(end)]
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("*.py"), *inside])


def _imported(text: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import of the package; the name of a module is ""."""
    for found in IMPORT.finditer(text):
        if "layerdag" not in found[1]:
            continue
        for statement in ast.parse(found[1].replace("...", "")).body:
            if isinstance(statement, ast.ImportFrom):
                yield from ((str(statement.module), alias.name) for alias in statement.names)
            elif isinstance(statement, ast.Import):
                names = (alias.name for alias in statement.names)
                yield from ((name, "") for name in names if name.split(".")[0] == "layerdag")


@cache
def _resolves(module: str, name: str) -> bool:
    try:
        found = importlib.import_module(module)
        if name and not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")
    except ImportError:
        return False
    return True


def test_every_import_of_the_package_resolves():
    broken = [
        f"{page.relative_to(ROOT)}: {module} {name}"
        for page in _pages()
        for module, name in _imported(page.read_text(encoding="utf-8"))
        if page != Path(__file__) and not _resolves(module, name)
    ]
    assert not broken, broken


def test_a_broken_import_inside_a_string_is_seen():
    (found,) = _imported('CODE = """\nfrom layerdag.graph import no_such_name\n"""')
    assert not _resolves(*found)
