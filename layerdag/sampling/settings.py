"""What to sample, checked when it is made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import LABEL, NUM_NODES, Condition
from layerdag.graph.formats.program_json import is_size
from layerdag.models.base import DAGModel
from layerdag.programs.targets import Targets
from layerdag.runtime.reading import Limits
from layerdag.schema.schema import GraphSchema
from layerdag.schema.size_tables import DEPTH

REQUESTED, PREDICTED = LABELS = ("requested", "predicted")
"""The label recorded with a sample: the requested one, or the one that the posterior predicts."""

GUIDANCE = 1.5
"""Of flow graphs, and of models without candidates for each node."""

JOB_GUIDANCE, JOB_TEMPERATURE = 1.0, 0.7
"""Chosen on validation jobs (docs/dev/decisions.md): sharper jobs have more of the neighborhoods
that real ones have, and are as similar otherwise. They follow their conditions without guidance,
which would take twice the time."""

JOB_REDRAWS = 3
"""Chosen on validation jobs (docs/dev/decisions.md, "Sizes drawn again")."""


PROGRAM_REDRAWS, TARGET_REDRAWS = 8, 2
"""Of programs of which a depth or other numbers are asked for, which some cannot reach.

Each draw with other numbers is a search of its own, hence the fewer."""


MAX_CANDIDATES = 10_000
"""Graphs that may be drawn for one that is kept: all of them are in memory at once."""


@dataclass(frozen=True)
class GenerationSettings:
    """What to sample; the defaults are those of ``layerdag sample``.

    Attributes:
        num: Number of graphs.
        seed: Graph i is sampled with seed ``seed + i`` and depends on nothing else of the run.
        conditions: Wanted conditions in their own units; open ones are drawn.
        ranks: Ranks of each job; None takes the condition "world_size", or what the stages need.
        steps: Denoising steps of a wide layer, `reference` only; None takes the model's own.
        guidance: Weight of classifier-free guidance; 1 is plain conditioning. None takes
            ``JOB_GUIDANCE`` for jobs of `fast` and for programs, and ``GUIDANCE`` otherwise.
        temperature: Of every decision; less than 1 is sharper, `fast` only. None takes
            ``JOB_TEMPERATURE`` for jobs of `fast`, and 1 otherwise.
        best_of: Graphs drawn for each one that is kept, by how well it fits its conditions and
            the neighbors that training shows; None takes the model's own: of `fast` 8 for jobs
            and 4 for flow graphs, 1 of `reference`, which cannot choose.
        redraws: Times that a graph with over a tenth more or fewer nodes than asked for, or a
            program that misses its targets, is drawn again; the nearest is kept. None takes
            ``JOB_REDRAWS``, ``PROGRAM_REDRAWS`` or 0.
        labels: One of ``LABELS``: the label of a sample is the requested one, or the one that the
            model predicts for the finished graph, from which a surrogate learns more.
        sizes: Wanted entries of programs' tables of sizes, such as ``{"B0": 64}``.
        targets: Wanted width, parameters, step time or plan of programs and their steps. Free sizes
            are chosen accordingly; a program that misses by over a tenth is drawn again.
        max_nodes: Limit of a graph; one that reaches it is marked truncated.
        batch_size: Graphs sampled side by side; changes speed, and on a processor never a graph.
            None is 32, of programs 128, and of samples in parts as many as fit into about a
            gigabyte; on a GPU it is 1,024, except for programs.
        processes: Drawing side by side on a CPU; changes speed, never a graph. None is 1 here, and
            the number of processors in ``layerdag sample``. A script that asks for several must do
            so under ``if __name__ == "__main__":``.
        limits: The most ranks of a job and bytes of all files that may be written.

    Raises:
        UsageError: If a value is out of bounds.
    """

    num: int = 16
    seed: int = 0
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    ranks: int | None = None
    steps: int | None = None
    guidance: float | None = None
    temperature: float | None = None
    best_of: int | None = None
    redraws: int | None = None
    labels: str = REQUESTED
    sizes: Mapping[str, int] = field(default_factory=dict)
    targets: Targets | None = None
    max_nodes: int = 10_000
    batch_size: int | None = None
    processes: int | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name in (
            "num", "max_nodes", "batch_size", "best_of", "ranks", "steps", "processes",
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"'{name}' must be at least 1, found {value}.")
        for name in ("best_of", "redraws"):
            value = getattr(self, name)
            if value is not None and value > MAX_CANDIDATES:
                raise UsageError(f"'{name}' must be at most {MAX_CANDIDATES:,}, found {value}.")
        for name in ("redraws", "seed"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UsageError(f"'{name}' must not be negative, found {value}.")
        if self.labels not in LABELS:
            raise UsageError(f"'labels' must be {' or '.join(LABELS)}, found {self.labels!r}.")
        for name, number in self.sizes.items():
            if not is_size(name) or type(number) is not int or not 0 < number <= 1 << 40:
                raise UsageError(
                    f"'sizes' holds {name}={number!r:.40}; entries of a table of sizes begin with "
                    "B, n, w, r or h and are whole numbers from 1 to 2**40, such as w0=4096."
                )

    def resolved(
        self, model: DAGModel, schema: GraphSchema, asked: Iterable[str] | None = None
    ) -> "GenerationSettings":
        """Return the settings with what is left to the model filled in.

        ``asked`` are the names of the conditions that are asked for; None is those of the settings.
        Raises UsageError if the model does not support the request.
        """
        if self.labels == PREDICTED:
            labeled = any(condition.name == LABEL for condition in schema.numeric_conditions)
            if not labeled or not model.posterior_objectives():
                raise UsageError(
                    "Only a fast model that was trained with a numeric condition 'label' can "
                    "predict labels; ask for labels=requested."
                )
        program = schema.kind.has_steps
        if self.sizes and not program:
            raise UsageError(
                "'sizes' are entries of the tables of programs, and this checkpoint samples none; "
                "leave them out."
            )
        if self.targets is not None and not program:
            raise UsageError(
                f"{', '.join(self.targets.named())}: are asked of programs, and this checkpoint "
                "samples none; leave them out, or ask for its conditions."
            )
        best_of = model.default_best_of if self.best_of is None else self.best_of
        fast_jobs = model.has_temperature and schema.kind.has_traces
        guidance, temperature = self.guidance, self.temperature
        if guidance is None:
            guidance = JOB_GUIDANCE if fast_jobs or program else GUIDANCE
        if temperature is None:
            temperature = JOB_TEMPERATURE if fast_jobs else 1.0
        model.require_options(steps=self.steps, best_of=best_of, temperature=temperature)
        redraws = self.redraws
        if redraws is None:
            asked = set(self.conditions if asked is None else asked)
            redraws = JOB_REDRAWS if NUM_NODES in asked and fast_jobs and best_of > 1 else 0
            if program and (DEPTH in asked or self.targets is not None):
                redraws = PROGRAM_REDRAWS if self.targets is None else TARGET_REDRAWS
        batch_size = self.batch_size
        if batch_size is None and not program:
            batch_size = model.default_batch_size
        return replace(
            self,
            best_of=best_of,
            redraws=redraws,
            guidance=guidance,
            temperature=temperature,
            batch_size=batch_size,
        )
