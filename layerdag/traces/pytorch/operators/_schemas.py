"""What a PyTorch operator does to its tensors, read from its schema: reads, writes, views, nothing.

The alias annotations of a schema say it all (PyTorch, aten/src/ATen/native/README.md):
``Tensor(a!)`` is written, a result ``Tensor(a)`` without ``!`` is a view, a plain result is new.
"""

import functools
import re
from dataclasses import dataclass
from enum import IntEnum

from layerdag.errors import TraceError
from layerdag.traces.pytorch.operators._collectives import COMMUNICATION, WAITS
from layerdag.traces.pytorch.operators._composites import is_composite


class OpRole(IntEnum):
    """What a node of a host trace means for the data-flow graph."""

    SCOPE = 0
    """Has no kernel of its own (scope, autograd wrapper, composite): its children count."""
    VIEW = 1
    """Moves no data: folded away together with its children."""
    ALLOCATION = 2
    """Returns new, unwritten memory."""
    COMPUTE = 3
    """Runs a kernel; its children are part of it."""
    COMMUNICATION = 4
    """Sends or receives; its children are part of it."""
    GROUP = 5
    """Declares process groups."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What the importer must know of an operator.

    Attributes:
        role: The operator's role.
        written: Positions of the arguments that are written.
        overwritten: Those among them whose old content is not read.
        reallocated: Those among them whose memory was allocated just before without an operator.
    """

    role: OpRole
    written: frozenset[int] = frozenset()
    overwritten: frozenset[int] = frozenset()
    reallocated: frozenset[int] = frozenset()


PROCESS_GROUP_INIT = "## process_group:init ##"

_ALLOCATIONS = ("aten::empty", "aten::new_empty", "aten::_empty_", "aten::resize_")
# Views that the alias annotations do not show, and functions that only give tensors another owner.
_HIDDEN_VIEWS = frozenset(
    {
        "aten::_unsafe_view",
        "aten::_reshape_alias",
        "aten::lift",
        "aten::set_",
        "_c10d_functional::_wrap_tensor_autograd",
    }
)
# In-place operators that do not read what they write over.
_OVERWRITES = re.compile(
    r"aten::(_foreach_)?(copy_|fill_|zero_|normal_|uniform_|random_|bernoulli_|exponential_|set_)$"
)
# FSDP2 resizes the storages of unsharded parameters, unseen, before it copies into them.
_REALLOCATED = frozenset({"fsdp::split_with_sizes_copy"})
_ALIAS = re.compile(r"Tensor(\[\])?\([a-z]")


@functools.lru_cache(maxsize=8192)
def signature(name: str, schema: str, triton: bool = False) -> Signature:
    """Return the signature of an operator.

    Args:
        name: Node name, such as "aten::add_".
        schema: Its schema, "" for scopes and autograd nodes.
        triton: Whether the node is a compiled Triton kernel, which has no schema.

    Raises:
        TraceError: If the schema is none that PyTorch writes.
    """
    if name in COMMUNICATION:
        return Signature(OpRole.COMMUNICATION)
    if name == PROCESS_GROUP_INIT:
        return Signature(OpRole.GROUP)
    if triton:
        return Signature(OpRole.COMPUTE)
    qualified = schema.partition("(")[0]
    if not schema or is_composite(qualified) or name.startswith(("profiler::", "c10d::")):
        return Signature(OpRole.SCOPE)
    try:
        return _from_schema(name, schema)
    except (ValueError, IndexError):
        raise TraceError(
            f"operator '{name[:80]}' has the schema '{schema[:80]}', which is none that PyTorch "
            "writes; collect the trace again."
        ) from None


def _from_schema(name: str, schema: str) -> Signature:
    """Classify an operator that has a kernel of its own."""
    arguments, results = _split(schema)
    written = frozenset(i for i, text in enumerate(arguments) if "!" in text.partition(")")[0])
    if name in WAITS or name in _HIDDEN_VIEWS or (not written and _ALIAS.search(results)):
        return Signature(OpRole.VIEW)
    if name.startswith(_ALLOCATIONS):
        return Signature(OpRole.ALLOCATION, written)
    if not written and "Tensor" not in results:
        return Signature(OpRole.SCOPE)
    if _OVERWRITES.match(name):
        return Signature(OpRole.COMPUTE, written, written)
    outs = frozenset(i for i in written if _argument_name(arguments[i]).startswith("out"))
    return Signature(OpRole.COMPUTE, written, outs, outs if name in _REALLOCATED else frozenset())


def _split(schema: str) -> tuple[list[str], str]:
    """Return the arguments and the result part of a schema; "*" is no argument."""
    depth = 0
    arguments: list[str] = []
    begin = schema.index("(") + 1
    for at in range(begin, len(schema)):
        letter = schema[at]
        if letter in "([":
            depth += 1
        elif letter in ")]" and depth:
            depth -= 1
        elif letter in ",)" and not depth:
            arguments.append(schema[begin:at].strip())
            begin = at + 1
            if letter == ")":
                break
    return [text for text in arguments if text not in ("", "*")], schema[begin:]


def _argument_name(text: str) -> str:
    """Return the name in "Tensor(a!) self" or "int dim=0"."""
    return text.partition("=")[0].split()[-1]
