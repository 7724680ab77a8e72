"""The public vocabulary: the only strings of a trace that may enter a schema, and so a sample.

Operator names of PyTorch's public namespaces, data types and kinds of device are public knowledge;
scopes, file names, kernel names, names of custom operators and whatever else a trace may hold are
not, and become ``<other>``.
"""

import re

OTHER = "<other>"
DEVICES = frozenset(
    {
        "cpu", "cuda", "hip", "hpu", "ipu", "meta", "mps", "mtia", "npu", "privateuseone", "tpu",
        "vulkan", "xla", "xpu",
    }
)  # fmt: skip

_PUBLIC = re.compile(
    r"(aten|prims|torch|quantized|c10d|_c10d_functional|nccl|autograd|profiler|layerdag)"
    r"::[A-Za-z_][A-Za-z0-9_]{0,63}"
)
_DTYPE = re.compile(
    r"bool|unknown|bfloat16|float(16|32|64)|q?u?int(4|8|16|32|64)|complex(32|64|128)"
    r"|float8_e[0-9]m[0-9](fn|fnuz)?|float4_e2m1fn_x2"
)


def public_name(name: str) -> str:
    """Return ``name`` if it is the name of a public operator, else ``<other>``."""
    return name if _PUBLIC.fullmatch(name) else OTHER


def public_dtype(word: str) -> str:
    """Return ``word`` if it is a data type such as "float32", else ``<other>``."""
    return word if _DTYPE.fullmatch(word) else OTHER


def public_device(word: str) -> str:
    """Return the kind of device without its index ("cuda:0" is "cuda"), else ``<other>``."""
    kind = word.partition(":")[0].lower()
    return kind if kind in DEVICES else OTHER
