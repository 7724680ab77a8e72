"""Operators by name: their schema, which of their numbers are sizes, and which may run."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import torch

from layerdag.errors import DataError
from layerdag.graph.formats.program_json import NAMESPACES

GETITEM = "getitem"
"""Takes one tensor out of the list that an operator returns."""

LEAVES = ("input", "parameter", "buffer", "constant")
"""Nodes that call no operator."""

_FORBIDDEN = frozenset(
    ("from_file", "set_", "set_data", "resize_", "_resize_output_", "record_stream", "data")
)
"""Operators that read files or reach behind the tensors that they are given."""

_STRUCTURE = frozenset(
    (
        *("ceil_mode", "correction", "dilation", "dim", "dims", "ignore_index", "index"),
        *("kernel_size", "output_padding", "pad", "padding", "padding_idx", "shifts"),
        *("step", "stride"),
    )
)
"""Arguments of type SymInt that say how an operator works, and are no sizes."""

_SIZES = frozenset(("num_classes", "end", "start"))
"""Arguments of type int or number that are sizes nevertheless."""

_RUN = frozenset(("device", "layout", "pin_memory", "generator"))
"""Arguments that belong to the machine, and are left out of a program."""


@final
@dataclass(frozen=True)
class Argument:
    """An argument of an operator."""

    name: str
    keyword: bool  # whether it is given by name alone
    sized: bool  # whether its numbers are sizes
    runtime: bool  # whether it says where the operator runs
    has_default: bool
    default: Any


@lru_cache(maxsize=4096)
def operator(name: str) -> Any:
    """Return the overload that a name such as "aten.linear.default" stands for.

    Raises:
        DataError: If there is none that a program may call.
    """
    parts = name.split(".")
    if len(parts) != 3 or parts[0] not in NAMESPACES or parts[1] in _FORBIDDEN:
        raise DataError(
            f"'{name[:80]}' is no operator that a program may call; those of {NAMESPACES[0]} are "
            "written as 'aten.linear.default'."
        )
    try:
        return getattr(getattr(getattr(torch.ops, parts[0]), parts[1]), parts[2])
    except (AttributeError, RuntimeError) as error:
        raise DataError(
            f"this PyTorch ({torch.__version__}) has no operator '{name[:80]}'; it belongs to "
            "another version or to a package that is not imported."
        ) from error


@lru_cache(maxsize=4096)
def arguments(name: str) -> tuple[Argument, ...]:
    """Return the arguments of an operator in order."""
    return tuple(_argument(part) for part in operator(name)._schema.arguments)


def _argument(part: Any) -> Argument:
    kind = part.real_type
    while kind.kind() in ("OptionalType", "ListType"):
        kind = kind.getElementType()
    symbolic = kind.kind() == "SymIntType" and part.name not in _STRUCTURE
    sized = symbolic or (part.name in _SIZES and kind.kind() in ("IntType", "NumberType"))
    known = part.has_default_value()
    return Argument(
        name=part.name,
        keyword=part.kwarg_only,
        sized=sized,
        runtime=part.name in _RUN,
        has_default=known,
        default=part.default_value if known else None,
    )


def in_place(name: str) -> bool:
    """Return whether an operator overwrites its first argument."""
    parts = name.split(".")
    return len(parts) == 3 and parts[1].endswith("_") and not parts[1].endswith("__")
