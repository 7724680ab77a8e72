"""Which kernels of training were run, and how far their results are from exact ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from layerdag.models import fused


class _Recorded:
    """Kernels that write down their names when they are called."""

    def __init__(self, kernels: Any, names: list[str]) -> None:
        self._kernels, self._names = kernels, names

    def __getattr__(self, name: str) -> Any:
        self._names.append(name.removeprefix("train_"))
        return getattr(self._kernels, name)


@contextmanager
def kernels_run() -> Iterator[list[str]]:
    """Return the names of the kernels that are run inside the block, in their order."""
    names: list[str] = []
    kernels = _Recorded(fused._kernels(), names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "_kernels", lambda: kernels)
        yield names


def far_apart(found: Tensor, wanted: Tensor) -> float:
    """Return the largest difference, in units of the largest wanted number."""
    assert found.shape == wanted.shape
    if not wanted.numel():
        return 0.0
    with torch.no_grad():
        difference = float((found.double() - wanted.double()).abs().max())
        return difference / max(float(wanted.abs().max()), 1e-30)
