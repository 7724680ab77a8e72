"""``GeneratedGraph``: a sample, its files, and how large they will be."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from layerdag.codec.folding import COMMUNICATION
from layerdag.codec.formats import write_graph
from layerdag.codec.placement import fitting_ranks
from layerdag.codec.unfolding import Unfolded, unfold_sampled
from layerdag.dag.dag import DAG
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.run_plans import corpus_strategy
from layerdag.errors import DataError, LayerdagError, MissingSampleError, UsageError
from layerdag.graph.attributed_graph import LABEL, AttributedGraph, Condition, encode_json
from layerdag.graph.formats import program_json
from layerdag.graph.formats.graphml import encode_graphml
from layerdag.graph.formats.rows import to_networkx
from layerdag.programs.forward_program import Program
from layerdag.programs.targets import TargetResult, Targets, step_time_of
from layerdag.runtime.files import write_bytes
from layerdag.runtime.reading import (
    NODE_BYTES,
    Limits,
    format_size,
    require_few_ranks,
    written_bytes,
)
from layerdag.samples.manifest import ENDINGS, sample_name
from layerdag.sampling.execution_check import drawn_program
from layerdag.sampling.step_derivation import (
    DerivedJob,
    DrawnTimes,
    derive_drawn_job,
    derive_job,
    requested_compute_model,
)
from layerdag.schema.plan_tables import SINGLE, STRATEGIES, PlannedStep, Setting
from layerdag.schema.schema import GraphSchema
from layerdag.schema.size_tables import FAMILY
from layerdag.simulator.compute import ComputeModel
from layerdag.traces.chakra.workload import encode_workload, write_workload
from layerdag.traces.trace import Workload

if TYPE_CHECKING:
    import networkx as nx
    from torch import Tensor
    from torch_geometric.data import Data


@dataclass(frozen=True)
class OutputSize:
    """What is about to be written, or was.

    Attributes:
        graphs: Number of graphs or jobs.
        least_ranks: Ranks of the smallest job; 0 for graphs that are no jobs.
        most_ranks: Ranks of the largest job; 0 for graphs that are no jobs.
        files: Number of files, about.
        bytes: Their size, about.
    """

    graphs: int
    least_ranks: int
    most_ranks: int
    files: int
    bytes: int

    def describe(self) -> str:
        """Return it in words."""
        ranks = f"{self.least_ranks:,} to {self.most_ranks:,}"
        if self.least_ranks == self.most_ranks:
            ranks = f"{self.most_ranks:,}"
        unit = "rank" if self.most_ranks == 1 else "ranks"
        many = "" if self.graphs == 1 else "s"
        what = f"{self.graphs:,} job{many} of {ranks} {unit}" if self.most_ranks else (
            f"{self.graphs:,} graph{many}"
        )  # fmt: skip
        return f"{what}: about {self.files:,} files and {format_size(self.bytes)}"


def expected_output_size(
    rows: Sequence[Mapping[str, Condition]],
    statistics: GraphStatistics,
    *,
    num: int,
    ranks: int | None,
    max_nodes: int,
    file_format: str,
) -> OutputSize:
    """Return about what sampling writes.

    Args:
        rows: Conditions of some of the graphs.
        statistics: Of the training graphs, for the nodes of a graph whose conditions do not tell.
        num: Number of all graphs.
        ranks: Of each job; None takes those of the conditions.
        max_nodes: Of a graph.
        file_format: "et", "step" (of programs: the program, and the traces of its step), "graphml",
            "json" or "program".

    Raises:
        DataError: If a world size is no number.
    """
    mean = sum(statistics.attributes[0]) / max(statistics.graphs, 1)
    nodes = [min(_number(row.get("num_nodes"), mean), max_nodes) for row in rows]
    fraction = num / len(rows)
    if file_format not in ("et", "step"):
        size = fraction * sum(nodes) * NODE_BYTES[file_format]
        return OutputSize(num, 0, 0, num + 1, math.ceil(size))
    asked = [requested_ranks(row, ranks) for row in rows]
    size = (
        fraction * sum(n * r for n, r in zip(nodes, asked, strict=True)) * NODE_BYTES[file_format]
    )
    files = math.ceil(fraction * sum(asked)) + 1
    if file_format == "step":
        size, files = size + fraction * sum(nodes) * NODE_BYTES["program"], files + num
    return OutputSize(num, min(asked), max(asked), files, math.ceil(size))


def requested_ranks(conditions: Mapping[str, Condition], ranks: int | None = None) -> int:
    """Return the ranks of a job: ``ranks``, else the condition "world_size", else 1.

    Raises:
        DataError: If the condition is no number of ranks.
    """
    if ranks is not None:
        return ranks
    found = conditions.get("world_size", 1)
    try:
        number = float(found)
        if not 1 <= number <= 1e15:
            raise ValueError("out of bounds")
    except ValueError:
        raise DataError(
            f"A world size of {found!r:.40} is no number of ranks; ask for ranks=N."
        ) from None
    return int(number)


def _number(value: Condition | None, default: float) -> float:
    """Return a condition as a number from 1 on."""
    try:
        number = default if value is None else float(value)
    except ValueError:
        return default
    return max(number, 1.0) if math.isfinite(number) else default


def as_workload(
    graph: "AttributedGraph | GeneratedGraph",
    ranks: int | None = None,
    limits: Limits | None = None,
) -> Unfolded:
    """Return the traces of a job's graph, on ``ranks`` or as many as the graph's condition says.

    A sample stands for its graph.

    Without ``ranks`` the condition "world_size" decides. A job that cannot run on so many ranks
    gets the next number on which it can, which counts as a repair.

    Raises:
        DataError: If it is not the graph of a job, or its world size is no number.
        UsageError: If it has more ranks than ``limits`` (by default the usual ones) allow.
    """
    if isinstance(graph, GeneratedGraph):
        graph = graph.graph
    wanted = requested_ranks(graph.conditions, ranks)
    fitting = job_ranks(graph, ranks, limits)
    unfolded = unfold_sampled(graph, fitting)
    if fitting == wanted:
        return unfolded
    return replace(unfolded, repairs={**unfolded.repairs, "ranks_raised": fitting - wanted})


def job_ranks(
    graph: AttributedGraph, ranks: int | None = None, limits: Limits | None = None
) -> int:
    """Return the number of ranks of ``as_workload``, which raises the same errors."""
    fitting = fitting_ranks(graph, requested_ranks(graph.conditions, ranks))
    require_few_ranks(fitting, limits or Limits(), graph.name)
    return fitting


_ENCODERS: Mapping[str, Callable[[AttributedGraph], bytes]] = {
    "graphml": encode_graphml,
    "json": encode_json,
    "program": lambda graph: program_json.encode_program_json(graph).encode(),
}


@dataclass(frozen=True, eq=False)
class SampleFiles:
    """One sample before it is written.

    Attributes:
        graph: Its names and numbers.
        file_format: "et", "program", "graphml" or "json".
        unfolded: The traces, in the format "et".
        job: The job that was derived, of a sampled program in the format "et".
        targets: With the plan that was asked for, and the cluster that times the job.
    """

    graph: AttributedGraph
    file_format: str
    unfolded: Unfolded | None
    job: DerivedJob | None = None
    targets: Targets | None = None

    @classmethod
    def from_sample(
        cls,
        sample: "GeneratedGraph",
        file_format: str,
        ranks: int | None,
        limits: Limits,
        targets: Targets | None = None,
    ) -> "SampleFiles":
        """Return the files of a sample; with a plan among the targets, of its step, too.

        Raises as ``as_workload``, and MissingSampleError where there is no such program or step.
        """
        if sample.files is not None and sample.files.graph.name == sample.name:
            return sample.files
        if not sample.schema.kind.has_steps:
            unfolded = as_workload(sample, ranks, limits) if file_format == "et" else None
            return cls(sample.graph, file_format, unfolded)
        targets = targets or Targets()
        compute = requested_compute_model(targets)
        try:
            graph = sample.graph
            if file_format != "et":
                return cls(graph, file_format, None)
            job = sample.derived(ranks, targets.plan, compute)
        except (DataError, UsageError) as error:
            raise MissingSampleError(str(error)) from error
        require_few_ranks(job.workload.num_ranks, limits, sample.name)
        return cls(graph, file_format, Unfolded(job.workload), job, targets)

    @property
    def num_bytes(self) -> int:
        """About how large the files are together."""
        nodes = self.graph.num_nodes
        if self.unfolded is not None:
            nodes = sum(trace.num_nodes for trace in self.unfolded.workload.traces)
        return written_bytes(nodes, self.file_format)

    def encoded(self) -> tuple[Mapping[str, object], list[tuple[str, bytes]]]:
        """Return what the entry says of them, and name and content of each file."""
        name = self.graph.name
        if self.unfolded is not None:
            files = encode_workload(self.unfolded.workload, name)
            if self.job is not None:
                files.append(self._program_file())
            return self._facts(self.unfolded), files
        file = f"{name}{ENDINGS[self.file_format]}"
        return {"file": file}, [(file, _ENCODERS[self.file_format](self.graph))]

    def write(self, folder: Path) -> Mapping[str, object]:
        """Write them into ``folder`` and return what the manifest says of them."""
        name = self.graph.name
        if self.unfolded is not None:
            (folder / name).mkdir()
            write_workload(self.unfolded.workload, folder / name / name)
            if self.job is not None:
                file, content = self._program_file()
                write_bytes(folder / name / file, content)
            return self._facts(self.unfolded)
        path = folder / f"{name}{ENDINGS[self.file_format]}"
        write_bytes(path, _ENCODERS[self.file_format](self.graph))
        return {"file": path.name}

    def _program_file(self) -> tuple[str, bytes]:
        return f"{self.graph.name}{program_json.SUFFIX}", _ENCODERS["program"](self.graph)

    def _facts(self, unfolded: Unfolded) -> Mapping[str, object]:
        plan: dict[str, object] = {}
        if self.job is not None:
            plan["plan"] = dict(self.job.plan.settings)
            job: dict[str, Condition] = {
                "strategy": corpus_strategy(self.job.plan.strategy),
                "phase": "training",
                "world_size": str(unfolded.workload.num_ranks),
            }
            plan["job"] = job
            if self.job.timed and self.targets is not None:
                job[LABEL] = step_time_of(unfolded.workload, self.targets)
        return {
            **plan,
            "ranks": unfolded.workload.num_ranks,
            "repairs": dict(unfolded.repairs),
            "completions": dict(unfolded.completions),
        }


@dataclass(frozen=True, eq=False)
class GeneratedGraph:
    """One sampled graph.

    Attributes:
        name: "sample-" and its number.
        seed: It was sampled with.
        dag: Codes, with the requested conditions; the label is predicted with ``labels=predicted``.
        truncated: Whether a limit cut it short.
        schema: What the codes mean.
        sizes: Wanted entries of a program's table of sizes; the others are drawn.
        drawn_with: The seed of the draw that was kept, where a graph was drawn several times.
        checked: Its program, where it has already been run.
        reached: Numbers that were asked of the program, and what it has.
        unmet: Why no program with these numbers was found; "" where one was.
        is_copy: Whether it repeats a program of the data that no sample is to repeat.
        files: Its files, where ``EagerEncoder`` has made them.
    """

    name: str
    seed: int
    dag: DAG
    truncated: bool
    schema: GraphSchema
    sizes: Mapping[str, int] = field(default_factory=dict)
    drawn_with: int | None = None
    checked: Program | None = field(default=None, repr=False)
    reached: tuple[TargetResult, ...] = ()
    unmet: str = ""
    is_copy: bool = False
    files: SampleFiles | None = field(default=None, repr=False)

    @cached_property
    def graph(self) -> AttributedGraph:
        """The graph in names and numbers.

        Raises:
            DataError: If it is to be a program, and none that runs.
        """
        if not self.schema.kind.has_steps:
            return self.decoded
        graph = program_json.program_graph(self.program.to_json(), self.name)
        return replace(graph, conditions={**self.decoded.conditions, **graph.conditions})

    @cached_property
    def program(self) -> Program:
        """The forward program, with a table of sizes.

        Raises:
            DataError: If the checkpoint samples no programs, or this sample does not run.
        """
        if not self.schema.kind.has_steps:
            raise DataError(
                f"{self.name} is no program; take a checkpoint that was trained on programs, such "
                "as the one that ships as 'programs'."
            )
        if self.checked is not None:
            return self.checked.named(self.name)
        if self.is_copy:
            raise DataError(
                f"{self.name}: every program drawn repeats one of the data; ask for other numbers "
                "or a higher temperature, or train on more programs of different structure."
            )
        if self.truncated:
            raise DataError(
                f"{self.name}: no program that runs was drawn; ask for more nodes (max_nodes), a "
                "lower temperature or a larger best_of, or train the model longer."
            )
        if self.unmet:
            raise DataError(
                f"{self.name}: no program with what was asked for was drawn; ask for other "
                f"numbers, another plan or another seed. The last one: {self.unmet}"
            )
        seed = self.seed if self.drawn_with is None else self.drawn_with
        return drawn_program(self.decoded, self.schema.sizes_of_programs, seed, self.sizes)

    @cached_property
    def decoded(self) -> AttributedGraph:
        """The graph in names and numbers, with the nodes of ``dag``."""
        return self.schema.decode(self.dag, self.name)

    @property
    def lacks_communication(self) -> bool:
        """Whether it is a job that was requested on several ranks, which exchange nothing."""
        if str(self.dag.conditions.get("world_size", "1")) == "1":
            return False
        types = self.decoded.categories.get("type", ())
        return bool(types) and COMMUNICATION.isdisjoint(types)

    def workload(self, ranks: int | None = None) -> Workload:
        """Return the traces of the job, on ``ranks`` or as many as its condition "world_size" says.

        A job that cannot run on so many ranks gets the next number on which it can. Of a program
        they are those of its step, see ``derived``.

        Raises:
            DataError: If it is not the graph of a job, nor a program.
        """
        if self.schema.kind.has_steps:
            return self.derived(ranks).workload
        return as_workload(self.graph, ranks).workload

    def derived(
        self,
        ranks: int | None = None,
        plan: Mapping[str, Setting] | None = None,
        compute: ComputeModel | None = None,
    ) -> DerivedJob:
        """Return a training step of the program.

        Args:
            ranks: Replicas of it.
            plan: Settings of the step. Without ranks and plan it is drawn from those of training
                programs.
            compute: What times operators. Without it they take as long as those of training jobs,
                if the checkpoint tells, and else have no times.

        Raises:
            DataError: If it is no program, or one that does not run.
            UsageError: If no plan that was drawn fits the program.
        """
        named, family = self.program.named(self.name), str(self.dag.conditions.get(FAMILY))
        if compute is None and self.schema.durations is not None:
            compute = DrawnTimes(self.schema.durations, self.seed)
        if ranks is None and not plan:
            return derive_drawn_job(named, family, self.schema.plans, self.seed, compute)
        settings = {**(plan or {}), **({} if ranks is None else {"data": ranks})}
        degrees = [name for name in STRATEGIES if int(settings.get(name, 1)) > 1]
        step = PlannedStep(family, "+".join(degrees) or SINGLE, settings)
        return derive_job(named, step, compute)

    @cached_property
    def job_graph(self) -> AttributedGraph:
        """The graph of a job; of a program that of its step, see ``derived``.

        Raises:
            DataError: If it is neither.
        """
        return self.derived().graph if self.schema.kind.has_steps else self.graph

    @property
    def edge_index(self) -> "Tensor":
        """Source and target of each edge of ``dag``."""
        return self.dag.edge_index

    def to_pyg(self) -> "Data":
        """Return the graph as PyG ``Data``, its codes as ``x``; see ``DAG.to_pyg``."""
        return self.dag.to_pyg()

    def to_networkx(self) -> "nx.DiGraph":
        """Return a ``networkx.DiGraph`` in names and numbers."""
        return to_networkx(self.graph)

    def save(self, path: str | Path) -> Path:
        """Write the graph, or without one of these endings the traces of the job; return the path.

        Args:
            path: ``.graphml``, ``.dot``, ``.json`` or ``.wf.json``, or a prefix of
                ``PREFIX.<rank>.et``.

        Raises:
            UsageError: If the ending is another one.
            DataError: If a graph that is no job is to be written as traces.
        """
        path = Path(path)
        if path.suffix:
            write_graph(self.graph, path)
        else:
            write_workload(self.workload(), path)
        return path

    def __repr__(self) -> str:
        """Return name, seed and sizes, not the tensors."""
        cut = ", truncated" if self.truncated else ""
        sizes = f"{self.dag.num_nodes:,} nodes, {self.dag.num_edges:,} edges"
        return f"GeneratedGraph({self.name!r}, seed={self.seed}, {sizes}{cut})"


@dataclass(frozen=True)
class EagerEncoder:
    """Makes the files of programs in the process that draws them; a step takes as long as a draw.

    Attributes:
        file_format: As ``SampleFiles.from_sample`` takes it, as the others.
        ranks: Of the step.
        limits: Of the request.
        targets: Of the request.
        first: Number of the first sample in the run.
    """

    file_format: str
    ranks: int | None
    limits: Limits
    targets: Targets | None
    first: int = 0

    def __call__(self, sample: GeneratedGraph, number: int) -> GeneratedGraph:
        """Return sample ``number`` after the first with its files, or without any it cannot have.

        Whoever writes it asks for them again and is told why.
        """
        named = replace(sample, name=sample_name(self.first + number))
        try:
            made = SampleFiles.from_sample(
                named, self.file_format, self.ranks, self.limits, self.targets
            )
        except LayerdagError:
            return named
        return replace(named, files=made)
