"""Jobs of many plans: valid, free of deadlock, run to their end, equal under any split of work."""

from typing import Any

import numpy as np
from hypothesis import given, strategies as st
from laws import tried

from layerdag.errors import UsageError
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.run import Variation, simulate
from layerdag.validation.checking import check_workload
from layerdag.workloads.transformer.job import SymbolicJob, transformer_job
from layerdag.workloads.transformer.shapes import Image, ModelShape

IMAGES: dict[str, Any] = {
    "image": Image(24, 2, 4, class_token=False, labels=10), "norm": "adaptive", "positions": 144
}  # fmt: skip


@st.composite
def jobs(draw: Any) -> SymbolicJob:
    """Return a job of at most 32 ranks with any mixture of parallelisms."""
    while True:
        mixture, reads = draw(st.booleans()), draw(st.sampled_from(["words", "words", "images"]))
        mixture = mixture and reads == "words"
        shape = ModelShape(
            "drawn", draw(st.integers(2, 5)), 512, 8, 1024, 1000,
            kv_heads=draw(st.sampled_from([4, 8])),
            tied=draw(st.booleans()), gated=draw(st.booleans()),
            experts=4 * mixture, experts_per_token=2 * mixture,
            **(IMAGES if reads == "images" else {}),
        )  # fmt: skip
        degrees = st.sampled_from([1, 1, 2, 2, 3, 4])
        rest = ["inference"] if reads == "images" else ["prefill", "decode"]
        phase = draw(st.sampled_from(["training"] * 4 + rest))
        plan = {name: draw(degrees) for name in ("data", "tensor", "pipeline", "context")}
        plan |= {"expert": draw(degrees) if mixture else 1}
        plan |= {"micro_batches": draw(st.integers(1, 4)), "tokens": draw(st.integers(1, 3))}
        plan |= {"sequence_parallel": draw(st.booleans())}
        if phase == "training":
            plan |= {"zero": draw(st.integers(0, 3))}
            plan |= {"schedule": draw(st.sampled_from(["1f1b", "gpipe", "zb-h1"]))}
            if plan["pipeline"] > 1 and plan["schedule"] == "1f1b":
                plan |= {"virtual_stages": draw(st.sampled_from([1, 2]))}
            plan |= {"recompute": draw(st.sampled_from(["none", "selective", "full"]))}
        batch = 2 * plan["data"] * plan["micro_batches"]
        try:
            sequence = shape.image.tokens if shape.image else 192
            made = transformer_job(shape, batch=batch, sequence=sequence, phase=phase, **plan)
        except UsageError:
            continue
        if made.plan.ranks <= 32:
            return made


@tried(6)
@given(jobs(), st.integers(0, 2**16))
def test_every_plan_is_valid_and_runs_to_its_end_whatever_ranks_are_slow(made, seed):
    workload = made.workload()
    assert [f for f in check_workload(workload) if f.rule.severity.name == "ERROR"] == []
    factor = np.random.default_rng(seed).uniform(0.3, 3.0, workload.num_ranks)
    slow = Variation(dict(enumerate(factor.tolist())))
    result = simulate(workload, Cluster("small"), compute="h100", variation=slow)
    assert (result.finish_ns >= 0).all()
    assert result.num_nodes == made.summary()["nodes"]
