"""What the custom calls of compiled programs take: annotations, cuBLAS and cuDNN.

XLA's compiler for NVIDIA's devices replaces matrix products, convolutions and attention by calls of
libraries, and tells in ``backend_config`` and ``dim_labels`` what they compute.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layerdag.traces.hlo.hlo_text import ORDER_TARGET
from layerdag.traces.hlo.program import ValueType

_ANNOTATIONS = frozenset(
    (
        *("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint"),
        *("annotate_device_placement", "AssumeGatherIndicesInBound", "NopCustomCall"),
        *("AllocateBuffer", "CreateBuffer", "Pin", "Unpin", "shape_assertion", ORDER_TARGET),
    )
)
_GEMM = re.compile(r"__cublas\$(?:gemm|lt\$matmul(?:\$f8)?)|__triton_gemm")
_CONVOLUTION = re.compile(r"__cudnn\$conv(?P<kind>BackwardInput|BackwardFilter|\w*)")
_ATTENTION = re.compile(r"__cudnn\$fmha\w*?(?P<back>Backward)?(?:F8)?")
_LIBRARY = ("__cublas$", "__cudnn$")
_BACKWARD_PRODUCTS = 5
_BYTES = ("i8", "ui8")


@dataclass(frozen=True)
class CustomCall:
    """A custom call of a program.

    Attributes:
        target: What is called.
        config: Text of its ``backend_config``; "" if there is none.
        layout: ``dim_labels`` of a convolution, such as "b01f_o01i->b01f"; "" for others.
        inputs: Operands.
        outputs: Results, without the scratch memory of a library.
    """

    target: str
    config: str
    layout: str
    inputs: Sequence[ValueType]
    outputs: Sequence[ValueType]

    def is_annotation(self) -> bool:
        """Return whether it only tells something to the compiler, and takes no time."""
        return self.target in _ANNOTATIONS or self.target.startswith("xla.sdy.")

    def matrix_flops(self) -> int | None:
        """Return the operations of a matrix product, a convolution or attention.

        None if the call is none of these, or if its configuration does not say what it computes.
        """
        try:
            if _GEMM.fullmatch(self.target):
                return self._product()
            if found := _CONVOLUTION.fullmatch(self.target):
                return self._convolution(found["kind"])
            if found := _ATTENTION.fullmatch(self.target):
                return self._attention(backward=bool(found["back"]))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, ZeroDivisionError):
            return None
        return None

    def _settings(self, part: str) -> Mapping[str, Any]:
        """Return the configuration; its part was the whole in former versions of XLA."""
        found = json.loads(self.config)
        return found.get(part, found)

    def _product(self) -> int:
        """Return the operations of a matrix product."""
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
        """Return the operations of the matrix products of attention, masked parts included."""
        settings = self._settings("cudnn_fmha_backend_config")
        scores = [int(size) for size in settings["intermediate_tensor_shape"]["dimensions"]]
        rows = math.prod(scores[:-1])
        width = self.inputs[0].size // rows
        if backward:
            return _BACKWARD_PRODUCTS * 2 * math.prod(scores) * width
        return 2 * math.prod(scores) * (width + self.outputs[0].size // rows)


def without_scratch(target: str, outputs: Sequence[ValueType]) -> Sequence[ValueType]:
    """Return the results of a call without the scratch memory that a library asks for."""
    scratch = len(outputs) > 1 and target.startswith(_LIBRARY)
    last = outputs[-1] if scratch else None
    if last is not None and last.element in _BYTES and len(last.shape) == 1:
        return outputs[:-1]
    return outputs
