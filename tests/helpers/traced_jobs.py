"""Folders of small random jobs as traces, and samples like them, for tests of releases."""

from collections.abc import Iterator
from pathlib import Path

from random_jobs import random_job

from layerdag.codec.unfolding import unfold
from layerdag.sampling.generated import GeneratedGraph, GeneratedJob
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.traces.chakra.workload import write_workload


def write_jobs(folder: Path, count: int, *, ranks: int = 1, start: int = 0) -> Path:
    """Write so many different jobs as ``folder/secretproj-<n>.<rank>.et`` with labels."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["name,label"]
    for seed in range(start, start + count):
        job = unfold(random_job(seed, ranks, layers=4 + seed % 3), ranks).workload
        write_workload(job, folder / f"secretproj-{seed}")
        lines.append(f"secretproj-{seed},{0.001 * (1 + seed)}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


def invented(
    model: object, schema: GraphSchema, settings: GenerationSettings
) -> Iterator[GeneratedGraph]:
    """Stand in for a model: yield random jobs that no folder of ``write_jobs`` holds."""
    for i in range(settings.num):
        seed = 10_000 + settings.seed + i
        raw = random_job(seed, 1, layers=4 + seed % 3)
        conditions = {**raw.conditions, "label": 0.002}
        dag = schema.encode(raw).with_conditions(conditions)
        yield GeneratedJob(f"sample-{i:05d}", seed, dag, False, schema)
