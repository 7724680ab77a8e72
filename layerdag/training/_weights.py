"""Weights from elsewhere: checks before memory is spent, and where a run starts from."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors
from torch import Tensor

from layerdag._runtime import memory_left
from layerdag.errors import CheckpointError
from layerdag.models import DAGModel, ModelSpec, build_without_weights

# Weights of so many bytes are loaded without asking what is left.
_SMALL = 1 << 26


@dataclass(frozen=True)
class Origin:
    """The checkpoint whose weights a run started from.

    Attributes:
        name: Of its folder or run, without a path; "pretrained" for the one inside the package.
        fingerprint: SHA-256 of its weights file.
        step: Optimizer steps that it was trained for.
        data_fingerprint: Of the data that it was trained on.
    """

    name: str
    fingerprint: str
    step: int = 0
    data_fingerprint: str = ""

    @classmethod
    def from_dict(cls, data: object) -> "Origin | None":
        """Return what ``asdict`` made; None for what is no origin."""
        if not isinstance(data, Mapping):
            return None
        texts = (str(data.get(n, "")) for n in ("name", "fingerprint", "data_fingerprint"))
        name, fingerprint, of_data = texts
        step = data.get("step")
        return cls(name, fingerprint, step if type(step) is int else 0, of_data)


@dataclass(frozen=True, eq=False)
class InitialWeights:
    """What a run starts from instead of random weights.

    Attributes:
        weights: The whole state dict of the new model.
        origin: Where they come from.
    """

    weights: Mapping[str, Tensor]
    origin: Origin


def check_shapes(file: Path, spec: ModelSpec) -> None:
    """Compare the weights' names and shapes with the model's, before memory is spent on either.

    Raises:
        CheckpointError: If the file is missing or damaged, or is not of the model, or the model
            does not fit into memory.
        ConfigError: If the model cannot be built.
    """
    try:
        with safetensors.safe_open(file, framework="pt") as handle:
            found = {name: tuple(handle.get_slice(name).get_shape()) for name in handle.keys()}  # noqa: SIM118 - no mapping
    except FileNotFoundError:
        raise CheckpointError(f"{file} is missing; the checkpoint is incomplete.") from None
    except (safetensors.SafetensorError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"{file} cannot be read ({reason}); copy or train the checkpoint again."
        ) from error
    model = build_without_weights(spec)
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    _check_memory(file, wanted.values())
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name):
            raise CheckpointError(
                f"{file}: tensor '{name}' has shape {found.get(name, 'none')} but the model "
                f"that its checkpoint describes needs {wanted.get(name, 'none')}; the files are "
                "not of one checkpoint."
            )


def _check_memory(file: Path, shapes: Iterable[tuple[int, ...]]) -> None:
    """Refuse weights that do not fit beside a copy of themselves."""
    needed = 4 * sum(math.prod(shape) for shape in shapes)
    if needed > _SMALL and needed > memory_left() // 3:
        raise CheckpointError(
            f"{file}: the model has {needed / 2**30:.1f} GiB of weights, more than a "
            "third of the memory that is free; use a machine with more."
        )


def check_finite(file: Path, model: DAGModel) -> None:
    """Refuse weights with which every answer of the model would be NaN.

    Raises:
        CheckpointError: Names the first tensor with NaN or an infinite value.
    """
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError(
                f"{file}: tensor '{name}' holds NaN or infinite values; use an earlier checkpoint."
            )
