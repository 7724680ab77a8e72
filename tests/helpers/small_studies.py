"""A study of a tiny model on two tiny clusters, and what a file of it holds."""

import copy
from typing import Any

from layerdag.workloads.transformer.shapes import ModelShape

TINY = ModelShape("tiny", layers=4, hidden=64, heads=4, feed_forward=128, vocabulary=1000)
FAST, SLOW = 100.0, 1.0

STUDY: dict[str, Any] = {
    "model": TINY,
    "step": {"batch": 16, "sequence": 32},
    "plans": {"tensor": [1, 2, 3], "pipeline": [1, 2], "zero": [0, 3], "micro_batches": 2},
    "clusters": {
        "near": {
            "tflops": 1.0, "memory_gb_per_s": 100.0, "memory_gib": 0.01, "cost_per_hour": 3.6,
            "network": [{"topology": "Ring", "ranks": 4, "gb_per_s": FAST}],
        },
        "far": {
            "device": "h100", "memory_gib": 0.01, "cost_per_hour": 36.0,
            "network": [
                {"topology": "Switch", "ranks": 2, "gb_per_s": FAST, "latency_ns": 500},
                {"topology": "FullyConnected", "ranks": 2, "gb_per_s": SLOW},
            ],
        },
    },
}  # fmt: skip


def study(**changes: Any) -> dict[str, Any]:
    """Return the study with other parts."""
    return {**copy.deepcopy(STUDY), **changes}


def cluster(name: str = "near", **changes: Any) -> dict[str, Any]:
    """Return one of its clusters with other values."""
    return {**copy.deepcopy(STUDY["clusters"][name]), **changes}
