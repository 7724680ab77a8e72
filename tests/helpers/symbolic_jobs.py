"""Small models and jobs for tests, big enough that nothing takes 0 ns."""

from dataclasses import replace
from typing import Any

from layerdag.workloads.transformer.job import SymbolicJob, transformer_job
from layerdag.workloads.transformer.shapes import Image, Latent, ModelShape

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
DEEPSEEK = ModelShape(
    "tiny-deepseek", 4, 256, 8, 64, 512, gated=True, norm="rms", biases="none",
    latent=Latent(kv_rank=32, nope_width=16, rope_width=8, value_width=24, query_rank=48),
    experts=4, experts_per_token=2, shared_experts=2, dense_layers=1, dense_feed_forward=512,
)  # fmt: skip
DEEPSEEK_LITE = replace(
    DEEPSEEK, name="tiny-lite",
    latent=Latent(kv_rank=32, nope_width=16, rope_width=8, value_width=24),
)  # fmt: skip
VIT = ModelShape("tiny-vit", 4, 256, 8, 1024, 100, positions=65, image=Image(64, 8))
DIT = ModelShape(
    "tiny-dit", 4, 256, 8, 1024, 32, positions=64, norm="adaptive",
    image=Image(16, 2, 4, class_token=False, labels=11),
)  # fmt: skip


def small(shape: ModelShape, **settings: Any) -> SymbolicJob:
    """Return a job of a small model; 128 tokens a sequence unless told otherwise."""
    sequence = {} if shape.image else {"sequence": 128}
    return transformer_job(shape, **{**sequence, "batch": 8, **settings})


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
