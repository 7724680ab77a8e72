"""``layerdag validate`` of samples in parts: one sample is held at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerdag.datasets.samples import SampleRun, StoredSample, is_run, iter_samples
from layerdag.errors import DataError
from layerdag.evaluation.rules import TRACE_RULES, Finding, check_group_file, check_workload

_ENDINGS = (".tar", ".tar.gz", ".tar.xz", ".parquet")


@dataclass(frozen=True)
class CheckedPart:
    """A part whose samples were checked.

    Attributes:
        findings: What is wrong with them.
        count: How many there are.
        alone: How many are jobs of one rank.
    """

    findings: tuple[Finding, ...]
    count: int
    alone: int


def parts_at(path: Path) -> Sequence[Path] | None:
    """Return the parts at a path, those that are missing included; None if it is something else.

    Raises:
        DataError: If the file of the run is damaged.
    """
    if path.is_file():
        return [path] if path.name.endswith(_ENDINGS) else None
    if not is_run(path):
        return None
    run = SampleRun.read(path)
    return [path / run.file_of(part) for part in range(run.num_parts)]


def check_part(path: Path) -> CheckedPart:
    """Check all samples of a part; what cannot be read is a finding like any other."""
    findings: list[Finding] = []
    count = alone = 0
    try:
        for sample in iter_samples(path):
            count += 1
            found, ranks = _check(sample)
            alone += ranks == 1
            findings += [replace(finding, sampled=True) for finding in found]
    except DataError as error:
        said = " ".join(str(error).split()).removeprefix(f"{path}: ").rstrip(".")
        findings.append(Finding(TRACE_RULES["readable"], str(path), None, said))
    return CheckedPart(tuple(findings), max(count, 1), alone)


def _check(sample: StoredSample) -> tuple[Sequence[Finding], int | None]:
    """Return the findings on one sample, and the ranks of a job."""
    if sample.is_job:
        workload = sample.workload()
        described = check_group_file(workload) if sample.files else []
        return [*described, *check_workload(workload)], workload.num_ranks
    from layerdag.api import validate  # loads torch

    return validate(replace(sample.graph, name=sample.source)), None
