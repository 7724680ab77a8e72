"""Models and steps that a user's Python file makes."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from layerdag.capturing.fake_tensors import RememberingFakeMode
from layerdag.capturing.parallel import TensorPlan
from layerdag.errors import LayerdagError, UsageError
from layerdag.runtime.settings import did_you_mean


@dataclass(frozen=True)
class UserModel:
    """The return value of the user's function: a module with its inputs, or a whole step."""

    model: nn.Module | Callable[[], object]
    inputs: Sequence[Any] = ()
    tensor_plan: TensorPlan | None = None


def load_user_model(text: str, mode: AbstractContextManager[Any] | None = None) -> UserModel:
    """Run ``FILE.py:FUNCTION`` and return what it made.

    The file runs as code with your rights: name only files that you trust. The function takes
    nothing. It returns a function that runs a step, or (module, inputs) or (module, inputs, tensor
    plan).

    Args:
        text: File and function.
        mode: Under which the function runs; by default, tensors that it makes have no content.

    Raises:
        UsageError: If there is no such file or function, if it fails or returns something else.
    """
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"{file} does not exist; give FILE.py:FUNCTION of a Python file.")
    found = _function(path, name)
    try:
        with mode or RememberingFakeMode():
            made = found()
    except LayerdagError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"{text} failed: {type(error).__name__}: {error}") from error
    if isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[0], nn.Module):
        inputs = made[1] if isinstance(made[1], list | tuple) else (made[1],)
        plan = made[2] if len(made) == 3 else None
        if plan is None or isinstance(plan, dict):
            return UserModel(made[0], inputs, plan)
    if callable(made) and not isinstance(made, nn.Module):
        return UserModel(made)
    raise UsageError(
        f"{text} returns {type(made).__name__}; return (module, inputs), (module, inputs, "
        "tensor plan), or a function that runs a step."
    )


def _function(path: Path, name: str) -> Callable[[], Any]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file; give FILE.py:FUNCTION.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except LayerdagError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    found = getattr(module, name, None)
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value)]
        raise UsageError(f"{path} has no function '{name}'.{did_you_mean(name, known)}")
    return found
