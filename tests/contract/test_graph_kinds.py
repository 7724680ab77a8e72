"""Nothing outside ``layerdag.kinds`` compares kinds of graphs: a kind says what is its own."""

import ast
from collections.abc import Iterator

import pytest
from imports import sources

from layerdag.kinds.flow import FLOW
from layerdag.kinds.job import JOB
from layerdag.kinds.program import PROGRAM

NAMES = {kind.name for kind in (JOB, PROGRAM, FLOW)}
OBJECTS = {"JOB", "PROGRAM", "FLOW", "JobKind", "ProgramKind", "FlowKind"}


def names_a_kind(node: ast.AST) -> bool:
    return any(
        (isinstance(part, ast.Constant) and part.value in NAMES)
        or (isinstance(part, ast.Name) and part.id in OBJECTS)
        for part in ast.walk(node)
    )


def is_a_kind(node: ast.AST) -> bool:
    """Return whether an expression is the kind of something: ``kind``, ``schema.kind``."""
    return (
        isinstance(node, ast.Name | ast.Attribute)
        and (node.id if isinstance(node, ast.Name) else node.attr) == "kind"
    )


def comparisons(tree: ast.AST) -> Iterator[int]:
    """Yield the lines on which the kind of a graph is compared with another one."""
    for node in ast.walk(tree):
        sides: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            sides = [node.subject, *(case.pattern for case in node.cases)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            sides = node.args if node.func.id == "isinstance" else []
        if any(map(is_a_kind, sides)) and any(map(names_a_kind, sides)):
            yield node.lineno


def test_no_file_outside_of_the_kinds_compares_them():
    found = {
        name: lines
        for name, tree in sources().items()
        if not name.startswith("layerdag.kinds") and (lines := list(comparisons(tree)))
    }
    assert found == {}


@pytest.mark.parametrize(
    "planted",
    [
        'schema.kind == "trace"',
        '"program" != kind',
        'data.schema.kind in ("trace", "flow")',
        "schema.kind is JOB",
        "isinstance(schema.kind, ProgramKind)",
        'match kind:\n    case "flow":\n        pass',
    ],
)
def test_a_planted_comparison_is_found(planted: str):
    assert list(comparisons(ast.parse(planted))) == [1]


@pytest.mark.parametrize("plain", ["schema.kind.has_traces", 'name == "flow"', "kind == node.kind"])
def test_other_expressions_are_no_comparisons(plain: str):
    assert list(comparisons(ast.parse(plain))) == []
