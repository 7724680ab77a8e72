"""Check what is stored at a path: workloads, graphs, and samples in parts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerdag.codec.formats import (
    FORWARD_PROGRAM,
    Content,
    ReadOptions,
    flow_format,
    format_of_file,
    recognize,
)
from layerdag.errors import DataError, TraceError
from layerdag.runtime.files import entries_in
from layerdag.runtime.notes import Note
from layerdag.samples.manifest import SampleRun, is_run
from layerdag.samples.stored import StoredSample
from layerdag.samples.writer import why_not_samples
from layerdag.traces.chakra.workload import RankFile, holds_rank_files
from layerdag.validation.checking import check_group_file, check_workload
from layerdag.validation.rules import TRACE_RULES, Finding


@dataclass(frozen=True)
class Checked:
    """A workload or graph that was checked, or a part with many of them.

    Attributes:
        num_ranks: Ranks of a workload; None for anything else, and for what cannot be read.
        count: Number of workloads and graphs.
        alone: How many of them have one rank.
        notes: What the reader did not understand.
    """

    target: Path
    findings: tuple[Finding, ...]
    num_ranks: int | None = None
    count: int = 1
    alone: int = 0
    notes: tuple[Note, ...] = ()


def check_path(path: Path, groups: str | None = None) -> Iterator[Checked]:
    """Check each workload and graph at or below a path, and each part of samples in parts.

    What cannot be read is a finding like any other.

    Args:
        path: A file, a prefix or a folder.
        groups: JSON file of communicator groups.

    Raises:
        DataError: If a folder holds nothing to check, or the file of its run is damaged.
    """
    parts = parts_at(path)
    if parts is not None:
        yield from map(check_part, parts)
        return
    for target in _targets(path):
        try:
            yield check_one(target, groups)
        except DataError as error:
            yield Checked(target, (_unreadable(target, error),))


def check_one(target: Path, groups: str | None = None) -> Checked:
    """Check one workload or graph.

    Raises:
        DataError: If it cannot be read.
    """

    def is_sampled() -> bool:
        return not all(map(why_not_samples, (target.parent, target.parent.parent)))

    place = recognize(target)
    if place.content is Content.GRAPH:
        graph = place.graph()
        if format_of_file(target) is FORWARD_PROGRAM:  # whose graph lacks what it returns
            from layerdag.programs.forward_program import Program

            found = [replace(each, where=str(target)) for each in Program.load(target).check()]
        else:
            from layerdag.evaluation.graph_findings import graph_findings  # loads torch

            named = replace(graph, name=str(target))
            found = graph_findings(named, in_layer_order=is_sampled())
        return Checked(target, tuple(found), notes=graph.notes)
    workload = place.traces(ReadOptions(groups))
    described = check_group_file(workload) if groups or holds_rank_files(target) else []
    found = described + check_workload(workload)
    if found and is_sampled():
        found = [replace(finding, sampled=True) for finding in found]
    ranks = workload.num_ranks
    return Checked(target, tuple(found), ranks, alone=int(ranks == 1), notes=workload.notes)


def _targets(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    entries = entries_in(path)
    prefixes = set()
    for file in (child for child in entries if child.match("*.et*") and child.is_file()):
        found = RankFile.from_name(file.name)
        ranked = found and found.prefix and file.name.startswith(f"{found.prefix}.")
        prefixes.add(found.prefix if found and ranked else file.name)
    graphs = [child for child in entries if child.is_file() and flow_format(child)]
    inner = [child for child in entries if child.is_dir()]
    yield from (path / prefix for prefix in sorted(prefixes))
    yield from graphs
    for folder in inner:
        yield from _targets(folder)
    if not (graphs or inner or prefixes):
        raise TraceError(f"{path}: holds no trace and no graph; give a folder of .et files.")


def _unreadable(path: Path, error: DataError) -> Finding:
    found = " ".join(str(error).split()).removeprefix(f"{path}: ").rstrip(".")
    return Finding(TRACE_RULES["readable"], str(path), None, found)


MAX_MISSING = 10_000
"""Parts of samples that are named one by one where they are missing."""


def parts_at(path: Path) -> Sequence[Path] | None:
    """Return the parts at a path, those that are missing included; None if it is something else.

    Raises:
        DataError: If the file of the run is damaged.
    """
    if path.is_file():
        is_part = path.name.endswith((".tar", ".tar.gz", ".tar.xz", ".parquet"))
        return [path] if is_part else None
    if not is_run(path):
        return None
    run = SampleRun.read(path)
    present = run.count_parts(path)
    if run.num_parts - present > MAX_MISSING:
        raise DataError(
            f"{path}: is to hold {run.num_parts:,} parts, of which {present:,} are there; repeat "
            "'layerdag sample', which writes the others, or get the folder from its source again."
        )
    return [path / run.file_of(part) for part in range(run.num_parts)]


def check_part(path: Path) -> Checked:
    """Check all samples of a part; what cannot be read is a finding like any other."""
    from layerdag.samples.reader import iter_samples  # loads torch

    findings: list[Finding] = []
    count = alone = 0
    try:
        for sample in iter_samples(path):
            count += 1
            checked = check_sample(sample)
            findings += checked.findings
            alone += checked.alone
    except DataError as error:
        findings.append(_unreadable(path, error))
    return Checked(path, tuple(findings), count=max(count, 1), alone=alone)


def check_sample(sample: StoredSample) -> Checked:
    """Check a stored sample; a job is checked as traces.

    Raises:
        DataError: If it is damaged.
    """
    ranks = None
    if sample.is_job:
        workload = sample.workload()
        ranks = workload.num_ranks
        found = check_group_file(workload) if sample.files else []
        found += check_workload(workload)
    else:
        from layerdag.evaluation.graph_findings import graph_findings  # loads torch

        found = graph_findings(replace(sample.graph, name=sample.source), in_layer_order=True)
    findings = tuple(replace(finding, sampled=True) for finding in found)
    return Checked(Path(sample.source), findings, ranks, alone=int(ranks == 1))
