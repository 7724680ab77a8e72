"""What one StableHLO operation says: what it contracts, whom it talks to, how often it loops.

XLA's compiler for NVIDIA's devices replaces matrix products, convolutions and attention by custom
calls of cuBLAS and cuDNN, whose ``backend_config`` and ``dim_labels`` say what they compute.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerdag.errors import DataError
from layerdag.hardware.hlo_operators import ANNOTATIONS, LIBRARIES, LIBRARY_CALLS
from layerdag.traces.hlo.hlo_text import ORDER_TARGET
from layerdag.traces.hlo.program import ValueType

_CONSTANTS_DEEP = 8


def reduced_elements(operation: Any, name: str, inputs: Sequence[ValueType]) -> int:
    """Return the elements behind one of the result: contracted, in the kernel, in the window."""
    if name == "dot":
        return inputs[0].shape[-1] if inputs[0].shape else 1
    attributes = operation.attributes
    if name == "dot_general":
        from jaxlib.mlir.dialects.stablehlo import DotDimensionNumbers

        product = DotDimensionNumbers(attributes["dot_dimension_numbers"])
        return math.prod(inputs[0].shape[i] for i in product.lhs_contracting_dimensions)
    if name in ("convolution", "dynamic_conv"):
        from jaxlib.mlir.dialects.stablehlo import ConvDimensionNumbers

        kernel = ConvDimensionNumbers(attributes["dimension_numbers"])
        summed = (*kernel.kernel_spatial_dimensions, kernel.kernel_input_feature_dimension)
        return math.prod(inputs[1].shape[i] for i in summed)
    if name == "reduce":
        return math.prod(inputs[0].shape[int(i)] for i in attributes["dimensions"])
    if name == "reduce_window":
        return math.prod(int(size) for size in attributes["window_dimensions"])
    return 1


def groups_of(
    operation: Any, devices: tuple[int, int], meshes: Mapping[str, Any]
) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each group of a collective; empty means all devices.

    A rank is replica times partitions plus partition. Ids are replicas without a channel, pairs of
    replica and all partitions with one, and ranks with ``use_global_device_ids`` (StableHLO,
    "Process groups").
    """
    replicas, partitions = devices
    table = operation.attributes["replica_groups"]
    rows = _mesh_groups(str(table), meshes) if "mesh_axes" in str(table) else _rows(table)
    rows = [[device for device in row if device >= 0] for row in rows]
    rows = [row for row in rows if row]
    if not rows:
        return ()
    everywhere = "use_global_device_ids" in operation.attributes
    channel = _channel(operation)
    if everywhere or replicas == 1 or partitions == 1:
        found = rows
    elif channel and operation.name.endswith("all_to_all"):
        found = [[r * partitions + p for p in row] for r in range(replicas) for row in rows]
    elif channel:
        found = [[r * partitions + p for r in row for p in range(partitions)] for row in rows]
    else:
        found = [[r * partitions + p for r in row] for p in range(partitions) for row in rows]
    return tuple(map(tuple, found))


def pairs_of(operation: Any, devices: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Return source and target of each message of a permutation, as ranks."""
    replicas, partitions = devices
    rows = _rows(operation.attributes["source_target_pairs"])
    if replicas == 1 or partitions == 1:
        return tuple((a, b) for a, b in rows)
    if _channel(operation):
        shifts = [r * partitions for r in range(replicas)]
        return tuple((s + a, s + b) for s in shifts for a, b in rows)
    return tuple(
        (a * partitions + p, b * partitions + p) for p in range(partitions) for a, b in rows
    )


def trip_count(operation: Any) -> int | None:
    """Return how often the body of a loop runs, None where it does not follow from constants."""
    test, body = (region.blocks[0] for region in operation.regions)
    *_, last = test.operations
    compare = _owner(last.operation.operands[0])
    if compare is None or not str(compare.name).endswith("compare"):
        return None
    counter, bound = compare.operands
    index = _argument(counter, test)
    limit = _constant(bound, operation, test)
    if index is None or limit is None:
        return None
    begin = _constant(operation.operands[index])
    *_, back = body.operations
    step = _step(back.operation.operands[index], body, index, operation)
    if begin is None or step is None or not step:
        return None
    return _turns(begin, limit, step, str(compare.attributes["comparison_direction"]))


def _turns(begin: int, limit: int, step: int, direction: str) -> int | None:
    """Return the turns of ``for (i = begin; i <direction> limit; i += step)``."""
    word = next((w for w in ("LT", "LE", "GT", "GE", "NE") if w in direction), "")
    if word == "NE":
        turns, rest = divmod(limit - begin, step)
        return turns if turns >= 0 and not rest else None
    up, stop = word in ("LT", "LE"), limit + (word == "LE") - (word == "GE")
    if word and not (begin < stop if up else begin > stop):
        return 0
    return -((begin - stop) // step) if word and up == (step > 0) else None


def _step(value: Any, body: Any, index: int, loop: Any) -> int | None:
    added = _owner(value)
    if added is None or not str(added.name).endswith(("add", "subtract")):
        return None
    sign = -1 if str(added.name).endswith("subtract") else 1
    first, second = added.operands
    if _argument(first, body) == index:
        step = _constant(second, loop, body)
        return None if step is None else sign * step
    if sign == 1 and _argument(second, body) == index:
        return _constant(first, loop, body)
    return None


def _constant(value: Any, loop: Any = None, block: Any = None) -> int | None:
    """Return the whole number that a value always is, None where it is not constant."""
    for _ in range(_CONSTANTS_DEEP):
        index = None if block is None else _argument(value, block)
        if index is not None:
            # Carried through the loop unchanged?
            *_, back = loop.regions[1].blocks[0].operations
            if _argument(back.operation.operands[index], loop.regions[1].blocks[0]) != index:
                return None
            value, block = loop.operands[index], None
            continue
        owner = _owner(value)
        if owner is None:
            return None
        if str(owner.name).endswith("constant"):
            found = np.array(owner.attributes["value"]).reshape(-1)
            return int(found[0]) if found.size == 1 and found.dtype.kind in "iub" else None
        if not str(owner.name).endswith(("convert", "reshape", "copy")):
            return None
        value = owner.operands[0]
    return None


def _owner(value: Any) -> Any:
    """Return the operation that makes a value, None for an argument of a block."""
    owner = value.owner
    return owner.operation if hasattr(owner, "operation") and hasattr(owner, "attributes") else None


def _argument(value: Any, block: Any) -> int | None:
    """Return which argument of a block a value is, None for other values."""
    return next((i for i, own in enumerate(block.arguments) if own == value), None)


def _channel(operation: Any) -> bool:
    if "channel_handle" not in operation.attributes:
        return False
    found = re.search(r"handle\s*=\s*(\d+)", str(operation.attributes["channel_handle"]))
    return found is not None and int(found[1]) > 0


def _rows(table: Any) -> list[list[int]]:
    found = np.array(table, dtype=np.int64)
    return found.reshape(len(found), -1).tolist() if found.size else []


def _mesh_groups(text: str, meshes: Mapping[str, Any]) -> list[list[int]]:
    named = re.search(r"mesh\s*=\s*@([\w.$-]+)", text)
    mesh = meshes.get(named[1]) if named else None
    if mesh is None:
        raise DataError(f"a collective names a mesh that is not there ({text:.100}).")
    layout = str(mesh.attributes["mesh"])
    sizes = {name: int(size) for name, size in re.findall(r'"([^"]+)"\s*=\s*(\d+)', layout)}
    listed = re.search(r"device_ids\s*=\s*\[([\d,\s]+)\]", layout)
    count = math.prod(sizes.values())
    order = [int(i) for i in listed[1].split(",")] if listed else list(range(count))
    axes = re.findall(r'name = "([^"]+)"', text)
    if "sub_axis" in text or any(axis not in sizes for axis in axes):
        raise DataError(f"a collective is split along a part of an axis ({text:.100}).")
    names = list(sizes)
    grid = np.array(order).reshape(*sizes.values())
    moved = np.moveaxis(grid, [names.index(axis) for axis in axes], range(-len(axes), 0))
    return moved.reshape(-1, math.prod(sizes[axis] for axis in axes)).tolist()


_BACKWARD_PRODUCTS = 5
_BYTES = ("i8", "ui8")


@dataclass(frozen=True)
class CustomCall:
    """A custom call of a program.

    Attributes:
        config: Text of its ``backend_config``; "" if there is none.
        layout: ``dim_labels`` of a convolution, such as "b01f_o01i->b01f"; "" for others.
        outputs: Results, without the scratch memory of a library.
    """

    target: str
    config: str
    layout: str
    inputs: Sequence[ValueType]
    outputs: Sequence[ValueType]

    def is_annotation(self) -> bool:
        """Return whether it only annotates something for the compiler, and takes no time."""
        known = (*ANNOTATIONS, ORDER_TARGET)
        return self.target in known or self.target.startswith("xla.sdy.")

    def matrix_flops(self) -> int | None:
        """Return the operations of a matrix product, a convolution or attention.

        None if the call is none of these, or if its configuration does not say what it computes.
        """
        kind, _, direction = LIBRARY_CALLS.get(self.target, "").partition(" ")
        try:
            if kind == "product":
                return self._product()
            if kind == "convolution":
                return self._convolution(direction)
            if kind == "attention":
                return self._attention(backward=direction == "backward")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, ZeroDivisionError):
            return None
        return None

    def _settings(self, part: str) -> Mapping[str, Any]:
        """Return the configuration; its part was the whole in former versions of XLA."""
        found = json.loads(self.config)
        return found.get(part, found)

    def _product(self) -> int:
        numbers = self._settings("gemm_backend_config")["dot_dimension_numbers"]
        contracted = [int(axis) for axis in numbers["lhs_contracting_dimensions"]]
        return 2 * self.outputs[0].size * math.prod(self.inputs[0].shape[i] for i in contracted)

    def _convolution(self, kind: str) -> int:
        """Return the operations of a convolution or of one of its gradients.

        The layout is that of the forward convolution in all three.
        """
        image, kernel = self.outputs[0], self.inputs[1]
        if kind == "BackwardInput":
            image = self.inputs[0]
        elif kind == "BackwardFilter":
            image, kernel = self.inputs[1], self.outputs[0]
        labels = self.layout.partition("->")[0].partition("_")[2]
        return 2 * image.size * (kernel.size // kernel.shape[labels.index("o")])

    def _attention(self, *, backward: bool) -> int:
        settings = self._settings("cudnn_fmha_backend_config")
        scores = [int(size) for size in settings["intermediate_tensor_shape"]["dimensions"]]
        rows = math.prod(scores[:-1])
        width = self.inputs[0].size // rows
        if backward:
            return _BACKWARD_PRODUCTS * 2 * math.prod(scores) * width
        return 2 * math.prod(scores) * (width + self.outputs[0].size // rows)


def without_scratch(target: str, outputs: Sequence[ValueType]) -> Sequence[ValueType]:
    """Return the results of a call without the scratch memory that a library asks for."""
    scratch = len(outputs) > 1 and target.startswith(LIBRARIES)
    last = outputs[-1] if scratch else None
    if last is not None and last.element in _BYTES and len(last.shape) == 1:
        return outputs[:-1]
    return outputs
