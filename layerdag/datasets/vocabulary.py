"""The public vocabulary: the only strings of a trace that may enter a schema, and so a sample.

Operator names of PyTorch's public namespaces are public knowledge; scopes, file names, kernel names
and names of custom operators are not, and become ``<other>``.
"""

import re

OTHER = "<other>"
_PUBLIC = re.compile(
    r"(aten|prims|torch|quantized|c10d|_c10d_functional|nccl|autograd|profiler|layerdag)"
    r"::[A-Za-z_][A-Za-z0-9_]{0,63}"
)


def public_name(name: str) -> str:
    """Return ``name`` if it is the name of a public operator, else ``<other>``."""
    return name if _PUBLIC.fullmatch(name) else OTHER
