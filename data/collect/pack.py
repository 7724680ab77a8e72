"""From the collected runs to the corpus: classes of ranks, hashes, splits, shards, checksums."""

import hashlib
import json
import platform
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from plan import RunPlan

from layerdag.dag.dag import DAG, graph_hash
from layerdag.runtime.files import write_text
from layerdag.runtime.rng import derive_seed
from layerdag.runtime.terminal import track
from layerdag.traces.analysis import match_communication
from layerdag.traces.chakra.corpus import INDEX, RankClass, RunRecord, read_run, write_shard
from layerdag.traces.chakra.files import encode_trace
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.pytorch.host_dataflow import number_groups
from layerdag.traces.pytorch.importer import import_operations, read_host
from layerdag.traces.pytorch.kineto import Timings
from layerdag.traces.trace import Ragged, Trace, Workload

EXAMPLES = {
    "ddp_mlp": ("mlp", "ddp", 2),
    "pp_gpt": ("gpt", "pp", 2),
    "ep_moe": ("moe", "ep", 4),
}
"""Family, strategy and world size of each example; the smallest such run is taken."""

TEST_SHARE, VAL_SHARE = 0.15, 0.10


@dataclass(frozen=True)
class Collected:
    """What the workers stored of one run."""

    plan: RunPlan
    classes: tuple[tuple[Trace, tuple[int, ...]], ...]
    groups: Mapping[str, tuple[int, ...]]
    step_times_s: tuple[float, ...]


def load(plan: RunPlan, folder: Path) -> Collected:
    """Import the traces of all ranks of one run and read their times."""
    ranks = range(plan.world_size)
    abouts = [json.loads((folder / f"{rank}.json").read_text()) for rank in ranks]
    hosts = [read_host(folder / f"{rank}.host.json.gz") for rank in ranks]
    names = number_groups([host.groups for host in hosts])
    classes: dict[bytes, tuple[Trace, list[int]]] = {}
    for rank, host in enumerate(hosts):
        times_ns = json.loads((folder / f"{rank}.dur.json").read_text())
        timings = Timings({int(handle): tuple(times) for handle, times in times_ns.items()})
        trace = import_operations(host, timings, names).trace
        classes.setdefault(program_of(trace), (trace, []))[1].append(rank)
    times = zip(*(about["step_times_s"] for about in abouts), strict=True)
    return Collected(
        plan,
        tuple((trace, tuple(ranks)) for trace, ranks in classes.values()),
        {name: ranks for ranks, name in names.items()},
        tuple(max(of_ranks) for of_ranks in times),
    )


def program_of(trace: Trace) -> bytes:
    """Return a digest of all but times: ranks with the same one run the same program."""
    columns = (trace.type_N, trace.data_deps.ptr_N1, trace.data_deps.values)
    texts = ("pg_name", "dtype", "device")
    numbers = ("num_ops", "tensor_size", "comm_type", "comm_size", "comm_src", "comm_dst")
    digest = hashlib.blake2b("\n".join(trace.names()).encode())
    for array in (*columns, trace.ctrl_deps.ptr_N1, trace.ctrl_deps.values):
        digest.update(array.tobytes())
    for name in numbers:
        digest.update(trace.integers(name)[0].tobytes())
    for name in texts:
        digest.update("\n".join(trace.texts(name)[0]).encode())
    return digest.digest()


def job_hash(traces: Sequence[Trace]) -> str:
    """Return the WL hash of all classes: operators, types, collectives and typed edges."""
    codes, edges, kinds, shift = [], [], [], 0
    for trace in traces:
        collective_N, _ = trace.integers("comm_type", default=-1)
        codes += [
            zlib.crc32(f"{name}|{kind}|{comm}".encode())
            for name, kind, comm in zip(
                trace.names(), trace.type_N.tolist(), collective_N.tolist(), strict=True
            )
        ]
        for kind, deps in enumerate((trace.data_deps, trace.ctrl_deps)):
            edges.append(_edges(trace, deps) + shift)
            kinds.append(np.full(edges[-1].shape[1], kind))
        shift += trace.num_nodes
    dag = DAG.build(
        torch.tensor(codes)[:, None],
        torch.from_numpy(np.concatenate(edges, axis=1)),
        edge_type_E=torch.from_numpy(np.concatenate(kinds)),
    )
    return graph_hash(dag, rounds=8)


def _edges(trace: Trace, deps: Ragged) -> np.ndarray:
    """Return (2, E) rows of source and target; ids of imported traces are rows."""
    target_E = np.repeat(np.arange(trace.num_nodes), np.diff(deps.ptr_N1))
    return np.stack([deps.values.astype(np.int64), target_E])


def split_of(run: str) -> str:
    """Return the split of a run, drawn by its name; equal graphs follow the first of them."""
    draw = derive_seed(0, "corpus-split", run) / 2**63
    if draw < TEST_SHARE:
        return "test"
    return "val" if draw < TEST_SHARE + VAL_SHARE else "train"


def pack(
    plans: Sequence[RunPlan], raw: Path, target: Path, split: str | None = None
) -> list[RunRecord]:
    """Write index, shards and checksums of the runs found under ``raw``; return the records.

    Args:
        plans: Runs; what was not collected is left out.
        raw: Folder of the raw runs.
        target: Folder of the corpus.
        split: Of every run; by default drawn by name.
    """
    shards: dict[str, list[tuple[str, bytes]]] = {}
    records: list[RunRecord] = []
    first_run: dict[str, str] = {}
    for plan in track(plans, "import"):
        if not (raw / plan.run / "done").exists():
            continue
        run = load(plan, raw / plan.run)
        shard = f"shards/{plan.family}.tar.xz"
        classes = []
        for number, (trace, ranks) in enumerate(run.classes):
            member = f"{plan.run}/{number}.et"
            shards.setdefault(shard, []).append((member, encode_trace(trace)))
            classes.append(RankClass(member, ranks))
        digest = job_hash([trace for trace, _ in run.classes])
        place = split or split_of(first_run.setdefault(digest, plan.run))
        records.append(_record(run, shard, tuple(classes), (digest, place)))
        _check(run)
    for shard, members in shards.items():
        write_shard(target / shard, members)
    write_text(target / INDEX, "".join(record.to_json() + "\n" for record in records))
    write_text(target / "checksums.sha256", _checksums(target, [INDEX, *sorted(shards)]))
    return records


def _check(run: Collected) -> None:
    """Stop if the communication of the ranks does not match: then the importer is at fault."""
    of_rank = {rank: trace for trace, ranks in run.classes for rank in ranks}
    traces = tuple(of_rank[rank] for rank in range(run.plan.world_size))
    found = match_communication(Workload(traces, run.groups, run.plan.run))
    if found.mismatches:
        raise RuntimeError(f"{run.plan.run}: {found.mismatches[0]}")


def _record(
    run: Collected, shard: str, classes: tuple[RankClass, ...], place: tuple[str, str]
) -> RunRecord:
    """Return the index line of one run; ``place`` is its graph hash and split."""
    plan, (digest, split) = run.plan, place
    return RunRecord(
        run=plan.run,
        family=plan.family,
        strategy=plan.strategy,
        world_size=plan.world_size,
        phase=plan.phase,
        split=split,
        hyper=dict(plan.hyper),
        step_times_s=run.step_times_s,
        step_time_s_min=min(run.step_times_s),
        shard=shard,
        classes=classes,
        groups=run.groups,
        graph_hash=digest,
        num_nodes=sum(trace.num_nodes for trace, _ in run.classes),
    )


def write_examples(records: Sequence[RunRecord], corpus: Path, target: Path) -> None:
    """Write small workloads, one plain file per rank, for the tour and for tests."""
    for name, (family, strategy, world_size) in EXAMPLES.items():
        fitting = [
            record
            for record in records
            if (record.family, record.strategy, record.world_size) == (family, strategy, world_size)
            and record.phase == "training"
        ]
        if fitting:
            smallest = min(fitting, key=lambda record: (record.num_nodes, record.run))
            write_workload(read_run(corpus, smallest).workload(), target / name, overwrite=True)


def _checksums(target: Path, names: Sequence[str]) -> str:
    """Return the lines that ``sha256sum -c`` reads."""
    lines = [f"{hashlib.sha256((target / n).read_bytes()).hexdigest()}  {n}\n" for n in names]
    return "".join(lines)


def describe(records: Sequence[RunRecord]) -> str:
    """Return the counts of the corpus as the Markdown table of the data card."""
    sizes = sorted(record.num_nodes for record in records)
    distinct = len({record.graph_hash for record in records})
    lines = [
        f"- {len(records)} runs, {distinct} distinct graphs (Weisfeiler-Lehman hash of a run)",
        f"- nodes of a run (one trace per class of ranks): median {sizes[len(sizes) // 2]}, "
        f"smallest {sizes[0]}, largest {sizes[-1]}, {sum(sizes)} in all",
        f"- software: torch {torch.__version__}, Python {platform.python_version()}",
        "",
        "| | " + " | ".join(sorted({r.strategy for r in records})) + " | all |",
    ]
    strategies = sorted({record.strategy for record in records})
    lines.append("|---|" + "---|" * (len(strategies) + 1))
    for family in sorted({record.family for record in records}):
        count = Counter(record.strategy for record in records if record.family == family)
        cells = [str(count[strategy]) for strategy in strategies]
        lines.append(f"| {family} | " + " | ".join(cells) + f" | {sum(count.values())} |")
    lines += ["", "| split | runs | distinct graphs |", "|---|---|---|"]
    for split in ("train", "val", "test"):
        chosen = [record for record in records if record.split == split]
        lines.append(f"| {split} | {len(chosen)} | {len({r.graph_hash for r in chosen})} |")
    return "\n".join(lines)
