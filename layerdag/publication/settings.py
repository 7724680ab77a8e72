"""The settings of a release, and the jobs that it reads."""

from dataclasses import dataclass, replace
from pathlib import Path

from layerdag.datasets.discovery import FoundJobs, read_folder
from layerdag.datasets.job_programs import all_record_arguments
from layerdag.errors import UsageError
from layerdag.runtime.notes import NoteCollector, NoteKind, merge_notes

STAGES = ("read", "train", "sample", "evaluate")
MIN_BUDGET = 20.0
MAX_FOLDS = 20
MIN_DISTINCT_PROGRAMS = 20
"""Below it traces are jobs: a model of 12 programs that differ in depth drew nothing but copies."""


@dataclass(frozen=True)
class ReleaseSettings:
    """How to make a release.

    Attributes:
        traces: Folder of traces or flow graphs, in any format that is read.
        out: Folder of the release.
        budget: Wall-clock seconds for everything, about.
        num: Samples wanted; fewer are kept if time runs out.
        seed: Of the split, of training and of sampling.
        labels: Label file (CSV, JSON or JSON Lines); by default what lies beside the traces.
        max_nodes: Larger jobs are left out, and listed.
        steps: Most optimizer steps.
        temperature: Of sampling; by default the model's own.
        best_of: Graphs drawn for each sample; by default the model's own number.
        license: Of the samples, for the data card; an SPDX name or a URL.
        creator: Who publishes the samples, for the data card.
        url: Where they are published, for the data card.
        cite: How to cite them, for the data card.
        cross_fit: Folds of runs that are held out in turn, in each of which a model is trained and
            sampled for the membership attacks. By default 5 (fewer below 40 runs) if there are too
            few runs to tell otherwise and the budget allows; 0 is none.
        until: The last stage: read, train, sample or evaluate; the same call goes on from there.
        overwrite: Whether another release, or another unfinished one, may be replaced.

    Raises:
        UsageError: If a value is out of bounds.
    """

    traces: Path
    out: Path
    budget: float = 900.0
    num: int = 200
    seed: int = 0
    labels: Path | None = None
    max_nodes: int = 2000
    steps: int = 1200
    temperature: float | None = None
    best_of: int | None = None
    license: str = ""
    creator: str = ""
    url: str = ""
    cite: str = ""
    cross_fit: int | None = None
    until: str = STAGES[-1]
    overwrite: bool = False

    def __post_init__(self) -> None:
        for name in ("num", "max_nodes", "steps", "best_of"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"'{name}' must be at least 1, found {value}.")
        if not MIN_BUDGET <= self.budget < float("inf"):
            raise UsageError(
                f"'budget' must be at least {MIN_BUDGET:.0f} seconds, found {self.budget:g}."
            )
        if self.seed < 0:
            raise UsageError(f"'seed' must not be negative, found {self.seed}.")
        if self.temperature is not None and not 0 < self.temperature <= 10:
            raise UsageError(f"'temperature' must lie in (0, 10], found {self.temperature:g}.")
        if self.until not in STAGES:
            raise UsageError(f"'until' must be one of {', '.join(STAGES)}, found {self.until!r}.")
        if self.cross_fit is not None and not (
            self.cross_fit == 0 or 2 <= self.cross_fit <= MAX_FOLDS
        ):
            raise UsageError(
                f"'cross_fit' must be 0 for none, or from 2 to {MAX_FOLDS}, found {self.cross_fit}."
            )
        self._check_places()

    def _check_places(self) -> None:
        traces, out = self.traces.resolve(), self.out.resolve()
        if not traces.is_dir():
            what = "is a file; name the folder that holds it" if traces.exists() else (
                "there is no such folder; check the path"
            )  # fmt: skip
            raise UsageError(f"{self.traces}: {what}.")
        if out == traces or traces in out.parents or out in traces.parents:
            raise UsageError(
                f"{self.out}: the release must lie outside of the traces in {self.traces}; name "
                "another folder with --out."
            )

    @property
    def private(self) -> Path:
        """Folder beside the release that stays with the owner."""
        return self.out.with_name(f"{self.out.name}.private")

    def request(self) -> dict[str, object]:
        """Return what determines the model, besides the traces; a later run may change the rest."""
        return {
            "seed": self.seed,
            "max_nodes": self.max_nodes,
            "steps": self.steps,
        }


def read_jobs(settings: ReleaseSettings) -> FoundJobs:
    """Read everything below the folder of traces of a release; see ``read_folder``.

    Where all traces record the arguments of their operators, these are the forward programs, unless
    too few of them are distinct.

    Raises:
        DataError: As ``read_folder``, and if programs call operators that are not PyTorch's.
    """
    folder, labels, max_nodes = settings.traces, settings.labels, settings.max_nodes
    if not all_record_arguments(folder):
        return read_folder(folder, labels, max_nodes=max_nodes, as_jobs=True)
    found = read_folder(folder, labels, max_nodes=max_nodes)
    if not found.kind.has_steps:
        return found
    if found.num_runs < MIN_DISTINCT_PROGRAMS:
        jobs = read_folder(folder, labels, max_nodes=max_nodes, as_jobs=True)
        if not jobs.kind.has_steps:
            notes = NoteCollector(str(folder))
            notes.add(
                NoteKind.OPERATOR,
                f"{found.num_runs} distinct programs",
                f"fewer than {MIN_DISTINCT_PROGRAMS}, which samples would repeat; the traces are "
                "learned as jobs",
            )
            return replace(jobs, notes=merge_notes([*notes.notes, *jobs.notes]))
    found.kind.require_public(found.graphs, str(folder))
    return found
