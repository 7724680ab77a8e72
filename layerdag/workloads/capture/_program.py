"""A model of the user's own, from a Python file that is run as code."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from layerdag._runtime import did_you_mean
from layerdag.errors import LayerdagError, UsageError
from layerdag.workloads.capture._parallel import TensorPlan


@dataclass(frozen=True)
class Program:
    """What the function of a file returned.

    Attributes:
        model: The module, or a function that runs a whole step.
        inputs: What the module is called with.
        tensor_plan: How tensor ranks split it, None if it does not say.
    """

    model: nn.Module | Callable[[], object]
    inputs: Sequence[Any] = ()
    tensor_plan: TensorPlan | None = None


def load_program(text: str) -> Program:
    """Run ``FILE.py:FUNCTION`` and return what it made.

    The file runs as code with your rights: name only files that you trust. The function takes
    nothing, and tensors that it makes have no content. It returns a function that runs a step, or
    (module, inputs) or (module, inputs, tensor plan).

    Raises:
        UsageError: If there is no such file or function, if it fails or returns something else.
    """
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"{file} does not exist; give FILE.py:FUNCTION of a Python file.")
    found = _function(path, name)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            made = found()
    except LayerdagError:
        raise
    except Exception as error:
        raise UsageError(f"{text} failed: {type(error).__name__}: {error}") from error
    return _program(text, made)


def _function(path: Path, name: str) -> Callable[[], Any]:
    """Run a file and return one of its functions."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file; give FILE.py:FUNCTION.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except LayerdagError:
        raise
    except Exception as error:
        raise UsageError(f"{path} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    found = getattr(module, name, None)
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value)]
        raise UsageError(f"{path} has no function '{name}'.{did_you_mean(name, known)}")
    return found


def _program(text: str, made: Any) -> Program:
    """Return what a function made, checked."""
    if isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[0], nn.Module):
        inputs = made[1] if isinstance(made[1], list | tuple) else (made[1],)
        plan = made[2] if len(made) == 3 else None
        if plan is None or isinstance(plan, dict):
            return Program(made[0], inputs, plan)
    if callable(made) and not isinstance(made, nn.Module):
        return Program(made)
    raise UsageError(
        f"{text} returns {type(made).__name__}; return (module, inputs), (module, inputs, "
        "tensor plan), or a function that runs a step."
    )
