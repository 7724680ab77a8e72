"""Small models and jobs for tests, big enough that nothing takes 0 ns."""

from typing import Any

from layerdag.workloads.symbolic import ModelShape, SymbolicJob, job

GPT = ModelShape(
    "tiny-gpt", 4, 256, 8, 1024, 512, positions=128, tied=True, dropout=True
)  # fmt: skip
LLAMA = ModelShape(
    "tiny-llama", 4, 256, 8, 512, 512, kv_heads=4, gated=True, norm="rms", biases="none"
)
MIXTURE = ModelShape(
    "tiny-mixture", 4, 256, 8, 512, 512, kv_heads=4, gated=True, norm="rms", biases="none",
    experts=4, experts_per_token=2,
)  # fmt: skip


def small(shape: ModelShape, **settings: Any) -> SymbolicJob:
    """Return a job of a small model; 128 tokens a sequence unless told otherwise."""
    return job(shape, **{"sequence": 128, "batch": 8, **settings})


def sizes(made: SymbolicJob, *prefixes: str, stage: int = 0) -> list[int]:
    """Return comm_size of the nodes of a stage whose names begin with one of the words."""
    trace = made.stages[stage]
    size_N, _ = trace.integers("comm_size")
    names = [trace.strings[index] for index in trace.name_N.tolist()]
    return [
        int(size)
        for name, size in zip(names, size_N, strict=True)
        if size and name.split(".")[0] in prefixes
    ]
