"""Spaces whose points are made and simulated in milliseconds."""

from typing import Any

from layerdag.workloads.llm_corpus import CorpusSpace, read_space

SMALL: dict[str, Any] = {
    "models": {"gpt3": "gpt3-6.7b", "llama3": "llama3-8b"},
    "layers": [4, 6, 8],
    "hidden": [512, 1024],
    "sequence": [256, 512],
    "micro_batch_size": [1, 2],
    "tensor": [1, 2],
    "world_size": [1, 2, 4, 8],
}


def small_space(**changes: Any) -> CorpusSpace:
    """Return a small space with some choices changed."""
    return read_space({**SMALL, **changes})
