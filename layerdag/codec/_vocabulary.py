"""The public vocabulary: the only strings of a trace that may enter a schema, and so a sample.

The operators that PyTorch registers itself, data types and kinds of device are public knowledge;
scopes, file names, kernel names, names of custom operators and whatever else a trace may hold are
not, and become ``<other>``.
"""

import re

from layerdag.traces import CollectiveType
from layerdag.traces.anonymize import public_operators

OTHER = "<other>"
DEVICES = frozenset(
    {
        "cpu", "cuda", "hip", "hpu", "ipu", "meta", "mps", "mtia", "npu", "privateuseone", "tpu",
        "vulkan", "xla", "xpu",
    }
)  # fmt: skip

_DTYPE = re.compile(
    r"bool|unknown|bfloat16|float(16|32|64)|q?u?int(4|8|16|32|64)|complex(32|64|128)"
    r"|float8_e[0-9]m[0-9](fn|fnuz)?|float4_e2m1fn_x2"
)


# The names that the importer gives to communication of any backend
# (traces/pytorch/operators/_collectives.py).
COLLECTIVE_NAMES = {kind.name: f"c10d::{kind.name.lower()}" for kind in CollectiveType}
SEND, RECEIVE = "c10d::send", "c10d::recv"
_COMMUNICATION = frozenset({*COLLECTIVE_NAMES.values(), SEND, RECEIVE})


# Operators of ``layerdag.workloads.symbolic``: what, layer, pass and micro-batch, gradient of what.
_OF_WORKLOADS = re.compile(
    r"(?P<what>(mm\.)?(absorb|act|adam|attention|compress|condition|down|embedding|kv_up|logits|loss"
    r"|mix|modulation|norm|norm1|norm2|norm_latent|out|patches|q_up|qkv|router|sample|shared_act"
    r"|shared_down|shared_up|up|value_up))(\.[0-9]+)?(\.(?P<pass>[FB])[0-9]*)?"
    r"(?P<of>\.(again|dx|dw))?"
)


def public_name(name: str) -> str:
    """Return the operator without its overload if it is a public one, else ``<other>``.

    An operator of ``layerdag workload`` loses its layer and micro-batch: "mm.qkv.3.B1.dx" is
    "mm.qkv.B.dx".
    """
    operator = name.partition(".")[0]
    if operator in _COMMUNICATION or operator in public_operators():
        return operator
    found = _OF_WORKLOADS.fullmatch(name)
    if found is None:
        return OTHER
    passed = f".{found['pass']}" if found["pass"] else ""
    return f"{found['what']}{passed}{found['of'] or ''}"


def is_communication(name: str) -> bool:
    """Return whether a public name is that of a collective or a message."""
    return name.startswith(("c10d::", "_c10d_functional::"))


def public_dtype(word: str) -> str:
    """Return ``word`` if it is a data type such as "float32", else ``<other>``."""
    return word if _DTYPE.fullmatch(word) else OTHER


def public_device(word: str) -> str:
    """Return the kind of device without its index ("cuda:0" is "cuda"), else ``<other>``."""
    kind = word.partition(":")[0].lower()
    return kind if kind in DEVICES else OTHER
