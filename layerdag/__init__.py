"""layerdag: generate, judge and use synthetic execution traces and flow graphs.

The names below are the ones most programs need; they are imported when they are first used, so that
``import layerdag`` costs nothing and reading a trace never waits for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerdag.datasets.base import GraphDataset
    from layerdag.datasets.corpus import load_corpus
    from layerdag.generate import GenerationSettings, as_workload, generate, write_samples
    from layerdag.graph.dag import DAG
    from layerdag.simulator.run import simulate
    from layerdag.traces.capture import capture
    from layerdag.traces.chakra import read_trace, write_trace
    from layerdag.traces.trace import Trace, Workload
    from layerdag.traces.workload import read_workload, write_workload
    from layerdag.training.checkpoint import load_checkpoint
    from layerdag.training.loop import train

__version__ = "0.1.0"

_HOME = {
    "DAG": "layerdag.graph.dag",
    "GenerationSettings": "layerdag.generate",
    "GraphDataset": "layerdag.datasets.base",
    "Trace": "layerdag.traces.trace",
    "Workload": "layerdag.traces.trace",
    "as_workload": "layerdag.generate",
    "capture": "layerdag.traces.capture",
    "generate": "layerdag.generate",
    "load_checkpoint": "layerdag.training.checkpoint",
    "load_corpus": "layerdag.datasets.corpus",
    "read_trace": "layerdag.traces.chakra",
    "read_workload": "layerdag.traces.workload",
    "simulate": "layerdag.simulator.run",
    "train": "layerdag.training.loop",
    "write_samples": "layerdag.generate",
    "write_trace": "layerdag.traces.chakra",
    "write_workload": "layerdag.traces.workload",
}

__all__ = [
    "DAG",
    "GenerationSettings",
    "GraphDataset",
    "Trace",
    "Workload",
    "__version__",
    "as_workload",
    "capture",
    "generate",
    "load_checkpoint",
    "load_corpus",
    "read_trace",
    "read_workload",
    "simulate",
    "train",
    "write_samples",
    "write_trace",
    "write_workload",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its home on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'layerdag' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)
