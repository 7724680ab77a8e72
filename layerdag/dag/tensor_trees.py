"""Trees of dataclasses whose leaves are tensors: a batch with what a model derived from it."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Shaped
from torch import Tensor

T = TypeVar("T")


def tensors_of(tree: object) -> Iterator[Shaped[Tensor, "..."]]:
    """Return the tensors of a tree in the order of the fields."""
    if isinstance(tree, Tensor):
        yield tree
    elif is_dataclass(tree):
        for field in fields(tree):
            yield from tensors_of(getattr(tree, field.name))


def with_each(tree: T, change: Callable[[Tensor], Tensor]) -> T:
    """Return a tree with another tensor in place of each; what is no tensor is kept."""
    if isinstance(tree, Tensor):
        return cast(T, change(tree))
    if not is_dataclass(tree) or isinstance(tree, type):
        return tree
    parts = {field.name: with_each(getattr(tree, field.name), change) for field in fields(tree)}
    return cast(T, replace(cast(Any, tree), **parts))


def on_device(tree: T, device: torch.device) -> T:
    """Return a tree with its tensors on ``device``."""
    return with_each(tree, lambda tensor: tensor.to(device))
