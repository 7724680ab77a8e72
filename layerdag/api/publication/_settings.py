"""What a release is made of, checked before anything is read."""

from dataclasses import dataclass
from pathlib import Path

from layerdag.api import PRETRAINED
from layerdag.api.auditing.shadows import LEAST_SHADOWS
from layerdag.errors import UsageError
from layerdag.traces import INDEX, embedded_corpus

STAGES = ("read", "train", "sample", "evaluate")
LEAST_BUDGET = 20.0
MOST_FOLDS = 20


@dataclass(frozen=True)
class ReleaseSettings:
    """How to make a release.

    Attributes:
        traces: Folder of traces or flow graphs, in any format that is read.
        out: Folder of the release.
        budget: Wall-clock seconds for everything, about.
        num: Samples wanted; fewer are kept if time runs out.
        seed: Of the split, of training and of sampling.
        labels: Label file (CSV, JSON or JSON Lines); None takes what lies beside the traces.
        max_nodes: Larger jobs are left out, and listed.
        steps: Most optimizer steps.
        temperature: Of sampling; None is the usual one, with weights 1.
        best_of: Graphs drawn for each sample; None is the usual number, with weights 1.
        license: Of the samples, for the data card; an SPDX name or a URL.
        init: Public checkpoint that models of jobs start from: the shipped one, a folder, or None
            for random weights. It must not have learned from the traces themselves.
        with_weights: Whether weights are to be published, too: those of a student, which learns
            from the published samples alone and is attacked with shadow models.
        public: Folder of graphs that are public anyway, in any format; the student learns as many
            of them as samples, so that it forgets less of its start.
        shadows: Number of shadow models.
        cross_fit: Folds of runs that are held out in turn, in each of which a model is trained and
            sampled for the membership attacks. None is 5 (fewer below 40 runs) if there are too
            few runs to tell otherwise and the budget allows; 0 is none.
        until: The last stage of ``STAGES`` to run; the same call goes on from there.
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
    steps: int = 120
    temperature: float | None = None
    best_of: int | None = None
    license: str = ""
    init: str | Path | None = PRETRAINED
    with_weights: bool = False
    public: Path | None = None
    shadows: int = LEAST_SHADOWS
    cross_fit: int | None = None
    until: str = STAGES[-1]
    overwrite: bool = False

    def __post_init__(self) -> None:
        for name in ("num", "max_nodes", "steps", "best_of"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"'{name}' must be at least 1, found {value}.")
        if not LEAST_BUDGET <= self.budget < float("inf"):
            raise UsageError(
                f"'budget' must be at least {LEAST_BUDGET:.0f} seconds, found {self.budget:g}."
            )
        if self.seed < 0:
            raise UsageError(f"'seed' must not be negative, found {self.seed}.")
        if self.temperature is not None and not 0 < self.temperature <= 10:
            raise UsageError(f"'temperature' must lie in (0, 10], found {self.temperature:g}.")
        if self.until not in STAGES:
            raise UsageError(f"'until' must be one of {', '.join(STAGES)}, found {self.until!r}.")
        if self.shadows < LEAST_SHADOWS:
            raise UsageError(
                f"'shadows' must be at least {LEAST_SHADOWS}, found {self.shadows}: fewer cannot "
                "tell how likely a graph is without having been trained on."
            )
        if self.cross_fit is not None and not (
            self.cross_fit == 0 or 2 <= self.cross_fit <= MOST_FOLDS
        ):
            raise UsageError(
                f"'cross_fit' must be 0 for none, or from 2 to {MOST_FOLDS}, found "
                f"{self.cross_fit}."
            )
        self._check_places()
        self._check_start()
        self._check_public()

    def _check_places(self) -> None:
        """Refuse a release inside its own traces, or the other way around."""
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

    def _check_public(self) -> None:
        """Refuse public graphs that are nowhere, or that nothing would learn from."""
        if self.public is None:
            return
        if not self.with_weights:
            raise UsageError("'public' is for weights; add --with-weights or leave it out.")
        if not self.public.is_dir():
            raise UsageError(
                f"{self.public}: there is no such folder of public graphs; check the path."
            )
        if self.public.resolve() == self.traces.resolve():
            raise UsageError(f"{self.public}: the traces are not public; name another folder.")

    def _check_start(self) -> None:
        """Refuse weights that start from a checkpoint that learned from the same jobs."""
        if self.init != PRETRAINED or not self.with_weights:
            return
        index = self.traces / INDEX
        if index.is_file() and index.read_bytes() == (embedded_corpus() / INDEX).read_bytes():
            raise UsageError(
                f"{self.traces}: the shipped checkpoint learned from these jobs, so that weights "
                "that start from it cannot be audited on them; name another start with --init, or "
                "leave --with-weights out."
            )

    @property
    def private(self) -> Path:
        """Folder beside the release that stays with the owner."""
        return self.out.with_name(f"{self.out.name}.private")

    def request(self) -> dict[str, object]:
        """Return what determines the model, besides the traces; a later run may change the rest."""
        init = self.init
        if init not in (None, PRETRAINED):
            init = str(Path(init).resolve())
        return {
            "seed": self.seed,
            "max_nodes": self.max_nodes,
            "steps": self.steps,
            "init": init,
        }
