"""Which compute nodes call kernels that were measured over their sizes, and with which sizes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from layerdag.simulator.kernel_work import KERNEL_AXES
from layerdag.traces.trace import Trace

_PRECISION = {"bf16": "bf16", "f8": "fp8", "f4": "nvfp4"}
"""Precision of the tables by class of number."""
_COUNTED_FROM_0 = ("past", "window")


@dataclass(frozen=True)
class KernelCalls:
    """Nodes that call one kind of kernel in one precision.

    Attributes:
        kind: A key of ``KERNEL_AXES``.
        number: Class of number, such as "bf16".
        precision: The same as tables name it.
        at: Places among the nodes asked for, int64 (C,).
        sizes_CA: Sizes in the order of ``KERNEL_AXES[kind]``.
        share_C: Share of the kernel that the node is: a block of experts is one kernel, and
            several nodes.
    """

    kind: str
    number: str
    precision: str
    at: np.ndarray
    sizes_CA: np.ndarray
    share_C: np.ndarray


def kernel_calls(trace: Trace, rows: np.ndarray, keys: list[str]) -> list[KernelCalls]:
    """Return the calls of nodes that state all sizes of a kernel.

    Products are "gemm", of whole experts (``experts``) "moe". Attention is one of the two kernels
    of serving engines where a node states the ``past`` tokens of its cache; without, it is
    PyTorch's, whose time is that of its family.

    Args:
        trace: The trace.
        rows: Positions of the nodes, shape (M,).
        keys: Their families, as ``operator_families.node_work`` gives them.
    """
    stated = _Columns(trace, rows)
    family = np.array([key.partition("/")[0] for key in keys], dtype=object)
    number = np.array([key.partition("/")[2] for key in keys], dtype=object)
    wanted = {
        "gemm": (family == "product") & (stated.of("batch", 1)[0] == 1),
        "moe": family == "grouped_product",
        "attention_prefill": (family == "attention") & (stated.of("past")[0] == 0),
        "attention_decode": (family == "attention") & (stated.of("sequence")[0] == 1),
    }
    found = []
    for kind, chosen in wanted.items():
        sizes, share, known = _RULES[kind](stated)
        for name, precision in _PRECISION.items():
            at = np.flatnonzero(chosen & known & (number == name))
            if len(at):
                table = np.stack([sizes[axis][at] for axis in KERNEL_AXES[kind]], axis=1)
                found.append(KernelCalls(kind, name, precision, at, table, share[at]))
    return found


class _Columns:
    """Integer attributes of some nodes."""

    def __init__(self, trace: Trace, rows: np.ndarray) -> None:
        self._trace, self._rows = trace, rows

    def of(self, name: str, default: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return values (M,), and which nodes state a possible one."""
        value_N, present_N = self._trace.integers(name, default)
        value, present = value_N[self._rows].astype(np.float64), present_N[self._rows]
        return value, present & (value >= (name not in _COUNTED_FROM_0))

    def several(self, *names: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return values by name, and which nodes state all of them."""
        columns = {name: self.of(name) for name in names}
        every = np.logical_and.reduce([present for _, present in columns.values()])
        return {name: value for name, (value, _) in columns.items()}, every


_Found = tuple[Mapping[str, np.ndarray], np.ndarray, np.ndarray]
"""Sizes by axis, share of the kernel, and whether all sizes are known, each (M,)."""


def _gemm(stated: _Columns) -> _Found:
    sizes, known = stated.several("m", "n", "k")
    return sizes, np.ones(len(known)), known


def _attention(stated: _Columns) -> _Found:
    names = ("batch", "sequence", "kv_sequence", "heads", "kv_heads", "head_dim", "past", "window")
    sizes, known = stated.several(*names)
    sizes["seq"] = sizes["sequence"]
    # Kernels of the tables are causal: without a cache a token sees those before it.
    known &= sizes["kv_sequence"] == np.where(
        sizes["past"] == 0, sizes["sequence"], sizes["past"] + sizes["sequence"]
    )
    return sizes, np.ones(len(known)), known


def _experts(stated: _Columns) -> _Found:
    """One of the products of a block: the tables time all three of gated experts as one."""
    names = ("m", "n", "k", "batch", "experts", "experts_per_token", "hidden", "ffn")
    sizes, known = stated.several(*names)
    here = np.maximum(sizes["batch"], 1)
    chosen, width = (np.maximum(sizes[name], 1) for name in ("experts_per_token", "ffn"))
    sizes["expert"] = np.maximum(sizes["experts"] / here, 1)
    sizes["tensor"] = np.ones(len(here))
    sizes["tokens"] = sizes["m"] * here * sizes["expert"] / chosen
    whole = 3 * np.maximum(sizes["hidden"], 1) * width
    return sizes, sizes["n"] * sizes["k"] / whole, known


_RULES = {
    "gemm": _gemm,
    "moe": _experts,
    "attention_prefill": _attention,
    "attention_decode": _attention,
}
