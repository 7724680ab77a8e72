"""Files of the user's own."""

from pathlib import Path

import pytest
from torch import nn

from layerdag.errors import UsageError
from layerdag.workloads.capture import load_program

MODEL = """
import torch
from torch import nn

def make():
    return nn.Linear(4, 4), torch.zeros(2, 4)

def split():
    return nn.Linear(4, 4), (torch.zeros(2, 4),), {"": "colwise"}

def step():
    return lambda: torch.zeros(2) + 1

def number():
    return 3

def broken():
    raise RuntimeError("no weights")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MODEL)
    return path


def test_a_function_returns_a_module_with_inputs_or_a_step(file: Path) -> None:
    made = load_program(f"{file}:make")
    assert isinstance(made.model, nn.Linear)
    assert (len(made.inputs), made.tensor_plan) == (1, None)
    assert load_program(f"{file}:split").tensor_plan == {"": "colwise"}
    assert not isinstance(load_program(f"{file}:step").model, nn.Module)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mak", "Did you mean 'make'"),
        ("number", "returns int"),
        ("broken", "RuntimeError: no weights"),
    ],
)
def test_functions_that_give_no_model_are_refused(file: Path, name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        load_program(f"{file}:{name}")


def test_files_that_are_no_program_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        load_program(f"{tmp_path}/none.py:make")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("1 +")
    with pytest.raises(UsageError, match="SyntaxError"):
        load_program(f"{wrong}:make")
    note = tmp_path / "note.txt"
    note.write_text("hello")
    with pytest.raises(UsageError, match="no Python file"):
        load_program(f"{note}:make")
