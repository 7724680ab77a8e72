"""The size of the package may only fall: lines per folder, helpers with a single caller."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from imports import PACKAGE, ROOT, sources

LINES = {
    "api": 1_630,
    "capturing": 2_738,
    "cli": 5_377,
    "codec": 2_880,
    "dag": 1_445,
    "datasets": 4_423,
    "differences": 1_250,
    "dp": 1_184,
    "evaluation": 4_778,
    "graph": 3_539,
    "hardware": 1_981,
    "kinds": 299,
    "layerdag": 855,
    "models": 9_122,
    "privacy": 3_883,
    "programs": 5_002,
    "publication": 3_010,
    "report": 2_189,
    "runtime": 2_454,
    "samples": 1_326,
    "sampling": 2_834,
    "schema": 1_957,
    "serving": 2_436,
    "simulator": 8_468,
    "surrogates": 2_938,
    "traces": 9_824,
    "training": 2_995,
    "validation": 2_417,
    "viz": 1_295,
    "workloads": 7_167,
}
"""Lines of Python, docstrings included, in each folder, and in the files beside them.

Lower a number whenever code goes; raise one only by what another folder falls. The goal is 95,000
in all, and no more than 300 helpers.
"""
SINGLE_CALLERS = 241
"""Private functions of at most ten lines that one place alone calls."""


def lines_by_folder() -> Counter[str]:
    lines: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        folder, *inside = path.relative_to(PACKAGE).parts
        lines[folder if inside else "layerdag"] += len(path.read_text().splitlines())
    return lines


def short_private_functions(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and re.match("_[a-z]", node.name):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if body and (body[-1].end_lineno or 0) - body[0].lineno < 10:
                yield node.name


def single_callers() -> list[str]:
    """Return short private functions whose names occur twice: where defined and where called."""
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    files += (ROOT / "benchmarks").rglob("*.py")
    text = {path: path.read_text() for path in files if path != Path(__file__)}
    words = Counter(word for one in text.values() for word in re.findall(r"\b_[a-z]\w*", one))
    return [
        name
        for tree in sources().values()
        for name in short_private_functions(tree)
        if words[name] == 2
    ]


@pytest.mark.parametrize("folder", sorted({*LINES, *lines_by_folder()}))
def test_no_folder_grows(folder):
    lines = lines_by_folder()[folder]
    assert folder in LINES, f"{folder}: add a row for this new folder"
    assert lines <= LINES[folder], (
        f"layerdag/{folder} has {lines:,} lines, {lines - LINES[folder]:,} above its budget; "
        "remove as many elsewhere in the folder, or move the budget of another folder here"
    )


def test_no_new_helpers_with_a_single_caller():
    assert len(single_callers()) <= SINGLE_CALLERS, single_callers()
