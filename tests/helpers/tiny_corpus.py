"""A corpus of a few small random jobs, written as the embedded one is."""

from collections.abc import Mapping
from pathlib import Path

from random_jobs import random_job

from layerdag.codec.unfolding import unfold
from layerdag.traces.chakra.corpus import INDEX, RankClass, RunRecord, write_shard
from layerdag.traces.chakra.files import encode_trace
from layerdag.traces.trace import Workload

SHARD = "shards/tiny.tar.xz"


def write_corpus(folder: Path, counts: Mapping[str, int], *, ranks: int = 2) -> Path:
    """Write so many random jobs for each split; the step time grows with the number of nodes."""
    records, members = [], []
    for split, count in counts.items():
        for at in range(count):
            run = f"{split}-{at}"
            job = unfold(random_job(len(records), ranks, layers=3 + at % 4), ranks).workload
            found = _members(run, job)
            members += found
            records.append(_record(run, split, job, [name for name, _ in found]))
    write_shard(folder / SHARD, members)
    (folder / INDEX).write_text("".join(record.to_json() + "\n" for record in records))
    return folder


def _members(run: str, job: Workload) -> list[tuple[str, bytes]]:
    """Return one file for each rank of a job."""
    return [(f"{run}/{rank}.et", encode_trace(t)) for rank, t in enumerate(job.traces)]


def _record(run: str, split: str, job: Workload, members: list[str]) -> RunRecord:
    """Return the line of the index for a job."""
    nodes = sum(trace.num_nodes for trace in job.traces)
    return RunRecord(
        run=run, family="random", strategy="pp", world_size=job.num_ranks, phase="training",
        split=split, hyper={}, step_times_s=(nodes * 1e-3,), step_time_s_min=nodes * 1e-3,
        shard=SHARD, classes=tuple(RankClass(name, (rank,)) for rank, name in enumerate(members)),
        groups=dict(job.groups), graph_hash=run, num_nodes=nodes,
    )  # fmt: skip
