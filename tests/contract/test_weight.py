"""The size of the package may only fall: lines per folder, helpers with a single caller."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from imports import PACKAGE, ROOT, sources

LINES = {
    "api": 1_763,
    "capturing": 2_960,
    "cli": 7_138,
    "codec": 3_142,
    "dag": 1_474,
    "datasets": 5_042,
    "differences": 1_268,
    "dp": 1_299,
    "evaluation": 5_363,
    "graph": 3_743,
    "hardware": 1_414,
    "kinds": 285,
    "layerdag": 869,
    "models": 11_181,
    "privacy": 4_507,
    "programs": 5_642,
    "publication": 3_045,
    "report": 3_057,
    "runtime": 2_559,
    "samples": 1_302,
    "sampling": 3_047,
    "schema": 2_225,
    "serving": 2_609,
    "simulator": 10_042,
    "surrogates": 3_159,
    "traces": 11_292,
    "training": 3_443,
    "validation": 2_876,
    "viz": 1_523,
    "workloads": 8_311,
}
"""Lines of Python, docstrings included, in each folder, and in the files beside them.

Lower a number whenever code goes; raise one only by what another folder falls. The goal is 95,000
in all, and no more than 300 helpers.
"""
SINGLE_CALLERS = 569
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
