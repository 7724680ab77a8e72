"""Families of operators whose kernels cost alike, and the work that decides their time."""

import math
import re
from dataclasses import dataclass

import numpy as np

from layerdag.hardware.devices import Device
from layerdag.hardware.dtypes import item_bytes, number_class
from layerdag.hardware.operators import operator_family
from layerdag.traces.trace import OPERATOR, Trace

_WITH_KNOWN_STATISTICS = "batch_norm_inference"
"""Batch normalization of a step without backward pass: element by element, not by channels."""

_OF_JOBS = frozenset(("mm", "attention"))
"""Operators (``op_type``) of ``layerdag workload`` whose families are not told by their names."""
_BACKWARD = re.compile(r"\.B\d+$")
"""End of the names of those of a backward pass; "again" follows where they are forward ones."""
_INTENSE = 30.0
"""Operations for each byte above which an unknown operator is a matrix product."""
_CHANNEL_ROWS_PER_US = 1e3
"""Rows of one channel, which batch normalization reads by one block of threads alone."""
_THIN = 64
_UNITS = 132
"""Blocks of threads that run at once, of an H100; the last wave of a product is rarely full."""
_TILE = 64
"""Rows and columns of such a block."""

SIZES = ("m", "n", "k", "batch")
WITH_PRODUCTS = ("product", "grouped_product", "encoder_attention", "convolution")


@dataclass(frozen=True)
class KernelWork:
    """What the times of compute nodes follow from, each of shape (M,).

    Attributes:
        keys: Family, and class of number where it matters, such as "product/bf16".
        compute_us: Operations over the data sheet's peak.
        memory_us: Bytes over its bandwidth.
    """

    keys: list[str]
    compute_us: np.ndarray
    memory_us: np.ndarray


def node_work(trace: Trace, rows: np.ndarray, device: Device, tf32: bool) -> KernelWork:
    """Return the work of compute nodes.

    Args:
        trace: The trace.
        rows: Positions of the nodes, shape (M,).
        device: Whose data sheet counts.
        tf32: Whether products of single precision run as TF32, at half the rate of bf16.
    """
    dtypes = trace.dtypes()
    sizes, present = sizes_of(trace, rows)
    attended = _attended(trace, rows)
    num_ops = trace.integers("num_ops")[0][rows].astype(np.float64)
    num_bytes = trace.integers("tensor_size")[0][rows].astype(np.float64)
    keys, peaks = [], np.empty(len(rows))
    families = _families(trace, rows)
    for at, row in enumerate(rows.tolist()):
        family, dtype = families[at], dtypes[row]
        m, n, k, batch = sizes[at].tolist()
        item = item_bytes(dtype) or 4
        if family == "pointwise" and num_ops[at] > _INTENSE * max(num_bytes[at], 1):
            family = "product"
        number, peaks[at] = _rate(dtype, family, device, tf32)
        if present[at] and family.startswith(WITH_PRODUCTS):
            twice = 2 if family == "convolution_backward" else 1
            num_ops[at] = 2 * batch * m * n * k * twice
            if family.startswith("convolution") and batch == 1:
                num_ops[at] *= _waste(m, n)
            if family.startswith("convolution") and batch > 1:
                family += "_thin" if k <= _THIN else "_grouped"
                if k <= _THIN:
                    # Too few numbers for the units of matrix products, whatever their format.
                    number, peaks[at] = "f32", device.flops["f32"]
        elif attended[at] and family.startswith("attention"):
            # Fits count whole squares, as PyTorch does, and five products of a backward pass.
            num_ops[at] = attended[at] * (2.5 if family == "attention_backward" else 1)
        elif present[at] and "embedding" in family:
            num_ops[at], num_bytes[at] = m * n, 2 * m * n * item
        elif present[at] and "batch_norm" in family and family != _WITH_KNOWN_STATISTICS:
            num_ops[at] = peaks[at] / 1e6 * m / _CHANNEL_ROWS_PER_US
        keys.append(family_key(family, number, item))
    return KernelWork(keys, num_ops / peaks * 1e6, num_bytes / device.bytes_per_s * 1e6)


def _families(trace: Trace, rows: np.ndarray) -> list[str]:
    names, (operators, _) = trace.names(), trace.texts(OPERATOR, numbers=True)
    experts_N, _ = trace.integers("experts")
    found = [_family(names[row], operators[row]) for row in rows.tolist()]
    if not any("batch_norm_backward" in name for name in names):
        found = [_WITH_KNOWN_STATISTICS if "batch_norm" in each else each for each in found]
    of_experts = (experts_N[rows] > 0).tolist()
    return [
        "grouped_product" if family == "product" and grouped else family
        for family, grouped in zip(found, of_experts, strict=True)
    ]


def _family(name: str, operator: str) -> str:
    if operator not in _OF_JOBS or "::" in name:
        return operator_family(name)
    if operator == "attention" and _BACKWARD.search(name):
        return "attention_backward"
    return operator_family(operator) if operator == "mm" else operator


def _attended(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Return the operations of fused attention from its sizes, shape (M,); 0 where not stated."""
    names = ("batch", "heads", "sequence", "kv_sequence", "head_dim")
    return 4 * np.prod([trace.integers(name)[0][rows].astype(np.float64) for name in names], axis=0)


def _waste(m: float, n: float) -> float:
    """Return by what factor unfilled blocks and waves lengthen a convolution.

    Kernels choose smaller blocks where few are full, so that half of the logarithm is felt.
    """
    waves = math.ceil(math.ceil(m / _TILE) * math.ceil(n / _TILE) / _UNITS)
    return math.sqrt(waves * _UNITS * _TILE**2 / (m * n))


def family_key(family: str, number: str, item: int) -> str:
    """Return the key of a family's fit: products differ by number, others by width."""
    if family.startswith((*WITH_PRODUCTS, "attention")):
        return f"{family}/{number}"
    return f"{family}/half" if item == 2 else family


def sizes_of(trace: Trace, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return m, n, k, batch (1 where not stated), shape (M, 4), and whether m and n are stated."""
    columns, stated = [], []
    for name in SIZES:
        value_N, present_N = trace.integers(name, 1)
        columns.append(value_N[rows])
        stated.append(present_N[rows])
    return np.stack(columns, axis=1).astype(np.float64), stated[0] & stated[1]


def _rate(dtype: str, family: str, device: Device, tf32: bool) -> tuple[str, float]:
    number = number_class(dtype) or "f32"
    if number == "f8" and "f8" not in device.flops:
        number = "bf16"
    if number == "f32" and tf32 and family.startswith((*WITH_PRODUCTS, "attention")):
        return "tf32", device.flops["bf16"] / 2
    return number, device.flops.get(number, device.flops["f32"])
