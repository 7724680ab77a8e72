"""Shapes in signatures: every public function of tensors says them, and one letter has one meaning.

The annotations are checked in the tests (``--jaxtyping-packages`` in pyproject.toml), in the first
and some later calls of each function in each test (tests/helpers/first_calls.py).
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from beartype import beartype
from first_calls import Calls, jaxtyped
from imports import PACKAGE
from jaxtyping import Float

from layerdag.hardware.operators import base_name
from layerdag.models.conditions import Conditions
from layerdag.models.layers import segment_mean

MEANINGS = {
    "A": "node attributes",
    "B": "graphs",
    "C": "numeric conditions",
    "D": "width of a state",
    "E": "edges",
    "F": "feature columns",
    "G": "groups of rows",
    "H": "heads",
    "I": "prefixes",
    "J": "position buckets",
    "K": "codes",
    "L": "layers",
    "M": "categorical conditions",
    "N": "nodes",
    "O": "options",
    "P": "pairs",
    "Q": "decisions",
    "R": "rows",
    "S": "diffusion steps",
    "T": "tokens",
    "U": "uniforms",
    "V": "edges among rows",
    "W": "new nodes",
    "X": "selected graphs",
    "Y": "heads of all rows",
    "Z": "attention blocks",
    "b": "tokens of a block",
    "d": "width of a head or key",
    "e": "edges of one graph",
    "n": "nodes of one graph",
    "p": "parents of a node",
    "q": "selected decisions",
    "v": "visible keys",
    "w": "window",
    "z": "pooled blocks",
}
# A DAG and its constructor take what users give, and ``DAG.check`` refuses it in a sentence.
_CHECKED_BY_HAND = ("dag/dag.py: build", "dag/dag.py: DAG")
_PLACES = ("models", "dag", "graph", "surrogates")
_SUFFIX = re.compile(r"\b[a-z_][a-z0-9_]*_([A-Zbdenpqvwz0-9]{0,4}[A-Z][A-Zbdenpqvwz0-9]{0,4})\b")
_ENTRY = re.compile(r"^(\w) ([a-z ]+?)(?: \([^)]*\))?$")
_LEGEND = re.compile(r"Shape letters: (.*?)\.(?:\n|$)", re.DOTALL)

FILES = sorted(path for place in _PLACES for path in (PACKAGE / place).rglob("[a-z]*.py"))
MODEL_FILES = [path for path in FILES if path.relative_to(PACKAGE).parts[0] == "models"]


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_public_functions_of_tensors_say_their_shapes(path):
    bare = [
        f"{function.name}: {ast.unparse(annotation)}"
        for function in _public_functions(ast.parse(path.read_text()))
        if f"{name_of(path)}: {function.name}" not in _CHECKED_BY_HAND
        for annotation in _annotations(function)
        if "Tensor" in _without_shapes(annotation)
    ]
    assert not bare, f"{name_of(path)}: annotate with jaxtyping, as Float[Tensor, 'N D']: {bare}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_fields_of_tensors_say_their_shapes(path):
    classes = [node for node in ast.walk(ast.parse(path.read_text())) if _is_dataclass(node)]
    bare = [
        ast.unparse(field)
        for one in classes
        if f"{name_of(path)}: {one.name}" not in _CHECKED_BY_HAND
        for field in one.body
        if isinstance(field, ast.AnnAssign) and ast.unparse(field.annotation) == "Tensor"
    ]
    assert not bare, f"{name_of(path)}: annotate with jaxtyping, as Float[Tensor, 'N D']: {bare}"


@pytest.mark.parametrize("path", MODEL_FILES, ids=name_of)
def test_the_legend_of_a_file_explains_its_letters(path):
    tree = ast.parse(path.read_text())
    legend = _legend(ast.get_docstring(tree) or "")
    for letter, meaning in legend.items():
        assert meaning == MEANINGS.get(letter), f"{letter} means '{MEANINGS.get(letter)}'"
    used = {letter for name in _names(tree) for letter in _letters(name)}
    assert not used - legend.keys(), "letters of names or shapes that the legend does not explain"
    assert not legend.keys() - used, "letters of the legend that nothing has"


def test_shapes_are_checked_when_tests_call_a_function():
    group = torch.tensor([0, 0])
    count = torch.tensor([2])
    with pytest.raises(TypeError, match="segment_mean"):
        segment_mean(torch.zeros(3, 4), group, count)
    with pytest.raises(TypeError, match="segment_mean"):
        segment_mean(torch.zeros(2, 4, dtype=torch.int64), group, count)


def test_shapes_are_checked_when_tests_make_a_dataclass():
    with pytest.raises(TypeError, match="Conditions"):
        Conditions(torch.zeros(3, 1), torch.zeros(2, 1, dtype=torch.int64))


def test_types_are_checked_where_no_shape_is_named():
    with pytest.raises(TypeError, match="base_name"):
        base_name(3)


def test_calls_1_2_4_and_8_of_a_function_are_checked_in_each_test():
    calls = Calls()
    function = calls.limited(lambda: lambda: "checked", lambda: "not checked")
    other = calls.limited(lambda: lambda: "checked", lambda: "not checked")
    for _ in range(2):
        calls.begin_test()
        called = [function() for _ in range(10)]
        assert [n for n, how in enumerate(called, start=1) if how == "checked"] == [1, 2, 4, 8]
        assert other() == "checked"


def test_functions_made_inside_of_a_function_are_checked_together_and_stay_their_own():
    calls = Calls()

    def check(function: Callable[[], int]) -> Callable[[], int]:
        return lambda: -function()

    def inner(number: int) -> Callable[[], int]:
        def plain() -> int:
            return number

        return calls.limited_inside(check, plain)

    calls.begin_test()
    assert [inner(n)() for n in (1, 2, 3, 4, 5)] == [-1, -2, 3, -4, 5]
    calls.begin_test()
    first, second = inner(1), inner(2)
    assert (first(), second(), first(), first()) == (-1, -2, 1, -1)


def test_shapes_are_checked_inside_of_a_function():
    def total(numbers: Float[torch.Tensor, "B 2"]) -> Float[torch.Tensor, " B"]:
        return numbers.sum(1)

    checked = jaxtyped(total, typechecker=beartype)
    assert checked(torch.ones(3, 2)).tolist() == [2, 2, 2]
    with pytest.raises(TypeError, match="total"):
        checked(torch.ones(3, 4))


def _public_functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """Yield functions and methods whose names, and whose classes' names, have no underscore."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_") and node.name != "__init__":
            continue
        if isinstance(node, ast.ClassDef):
            yield from _public_functions(node)
        else:
            yield node


def _annotations(function: ast.FunctionDef) -> Iterator[ast.expr]:
    given = function.args
    for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs):
        if argument.annotation is not None:
            yield argument.annotation
    if function.returns is not None:
        yield function.returns


def _without_shapes(annotation: ast.expr) -> str:
    """Return an annotation without what jaxtyping describes, and without functions of tensors."""
    text = re.sub(r"\w+\[Tensor, '[^']*'\]", "", ast.unparse(annotation))
    return re.sub(r"(Callable|dict|Mapping|list|Sequence)\[.*", "", text)


def _is_dataclass(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any(
        "dataclass" in ast.unparse(decorator) for decorator in node.decorator_list
    )


def _legend(docstring: str) -> dict[str, str]:
    found = _LEGEND.search(docstring)
    if not found:
        return {}
    entries = [_ENTRY.match(entry) for entry in re.split(r", (?=\w )", _one_line(found.group(1)))]
    return {entry.group(1): entry.group(2) for entry in entries if entry}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _names(tree: ast.AST) -> Iterator[str]:
    """Yield names, and the dimensions in annotations as names that end with them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            dimensions = [part.value for part in node.slice.elts if isinstance(part, ast.Constant)]
            for text in filter(lambda value: isinstance(value, str), dimensions):
                yield from (
                    f"x_{letter}" for letter in re.findall(r"\b[A-Zbdenqvwz](?=\d?\b)", text)
                )


def _letters(name: str) -> set[str]:
    if re.fullmatch(r"x_[bdenpqvwz]", name):
        return {name[-1]}
    found = _SUFFIX.fullmatch(name)
    return {letter for letter in found.group(1) if letter.isalpha()} if found else set()


def test_there_are_files_to_look_at():
    assert len(FILES) > 30
    assert len(MODEL_FILES) > 15
