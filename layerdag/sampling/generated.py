"""``GeneratedGraph``: a sample, as a graph of codes, in names and numbers, and as traces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from layerdag.codec.folding import job_graph, rank_classes
from layerdag.codec.formats import write_graph
from layerdag.codec.placement import fitting_ranks
from layerdag.codec.unfolding import Unfolded, unfold_sampled
from layerdag.dag.dag import DAG
from layerdag.errors import DataError, LayerdagError, MissingSampleError, UsageError
from layerdag.evaluation.graph_findings import graph_findings
from layerdag.evaluation.validity import check_structure
from layerdag.graph.attributed_graph import AttributedGraph, Condition
from layerdag.graph.formats import program_json
from layerdag.graph.formats.rows import to_networkx
from layerdag.programs.forward_program import Program
from layerdag.programs.targets import TargetResult, Targets, target_metadata
from layerdag.runtime.reading import Limits, require_few_ranks
from layerdag.samples.manifest import sample_name
from layerdag.sampling.execution_check import drawn_program
from layerdag.sampling.sample_files import SampleFiles
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
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.trace import Workload
from layerdag.validation.checking import check_workload
from layerdag.validation.rules import Finding, has_errors

if TYPE_CHECKING:
    import networkx as nx
    from torch import Tensor
    from torch_geometric.data import Data


def requested_ranks(conditions: Mapping[str, Condition], ranks: int | None = None) -> int:
    """Return the ranks of a job: ``ranks``, else the condition "world_size", else 1.

    Raises DataError if the condition is no number of ranks.
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


def as_workload(
    graph: "AttributedGraph | GeneratedGraph",
    ranks: int | None = None,
    limits: Limits | None = None,
) -> Unfolded:
    """Return the traces of a job's graph, on ``ranks`` or as many as its "world_size" says.

    A job that cannot run on so many ranks gets the next number on which it can, which counts as a
    repair. Raises DataError if it is not the graph of a job, or its world size is no number, and
    UsageError if it has more ranks than ``limits`` (by default the usual ones) allow.
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


@dataclass(frozen=True, eq=False)
class GeneratedGraph:
    """One sampled graph.

    ``dag`` has the requested conditions, or with ``labels=predicted`` the predicted label;
    ``truncated`` if a limit cut it short.
    """

    name: str
    seed: int
    dag: DAG
    truncated: bool
    schema: GraphSchema

    @property
    def graph(self) -> AttributedGraph:
        """The graph in names and numbers.

        Raises:
            DataError: If it is to be a program, and none that runs.
        """
        return self.decoded

    @cached_property
    def decoded(self) -> AttributedGraph:
        """The graph in names and numbers, with the nodes of ``dag``."""
        return self.schema.decode(self.dag, self.name)

    @property
    def program(self) -> Program:
        """The forward program, with a table of sizes.

        Raises:
            DataError: If the checkpoint samples no programs, or this sample does not run.
        """
        raise DataError(
            f"{self.name} is no program; take a checkpoint that was trained on programs, such "
            "as the one that ships as 'programs'."
        )

    def workload(self, ranks: int | None = None) -> Workload:
        """Return the traces of the job, on ``ranks`` or as many as its condition "world_size" says.

        A job that cannot run on so many ranks gets the next number on which it can. Of a program
        they are those of its step, see ``derived``.

        Raises:
            DataError: If it is not the graph of a job, nor a program.
        """
        return as_workload(self.graph, ranks).workload

    def derived(
        self,
        ranks: int | None = None,
        plan: Mapping[str, Setting] | None = None,
        compute: ComputeModel | None = None,
    ) -> DerivedJob:
        """Return a training step of the program.

        Args:
            ranks: Number of data-parallel replicas.
            plan: Settings of the step. Without ranks and plan it is drawn from training programs'.
            compute: Times the operators. By default they take as long as in training jobs, if the
                checkpoint knows, and else have no times.

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

    @property
    def job_graph(self) -> AttributedGraph:
        """The graph of a job; of a program that of its step, see ``derived``.

        Raises:
            DataError: If it is neither.
        """
        return self.graph

    def made_files(
        self, file_format: str, ranks: int | None, limits: Limits, targets: Targets | None = None
    ) -> SampleFiles:
        """Return the files of the sample; with a plan among the targets, of its step, too.

        Raises as ``as_workload``, and MissingSampleError where there is no such program or step.
        """
        unfolded = as_workload(self, ranks, limits) if file_format == "et" else None
        return SampleFiles(self.graph, file_format, unfolded)

    def entry(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Return the manifest's line of the sample, with what its files say."""
        return {
            "name": self.name,
            "seed": self.seed,
            "conditions": dict(self.dag.conditions),
            "nodes": self.dag.num_nodes,
            "edges": self.dag.num_edges,
            "truncated": self.truncated,
            **extra,
        }

    def table_row(
        self, ranks: int | None, limits: Limits
    ) -> tuple[Mapping[str, Any], AttributedGraph]:
        """Return what a table notes of the sample, and its graph. Raises as ``made_files``."""
        return self.entry({}), self.graph

    def findings(self) -> Sequence[Finding]:
        """Return the rules that the sample breaks."""
        return check_structure([self.dag], names=[self.name]).findings

    def written_graph(self) -> AttributedGraph:
        """Return the graph as the files of the sample will hold it.

        Raises:
            DataError: If it cannot become traces, or they break a rule.
        """
        return self.graph

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


@final
@dataclass(frozen=True, eq=False, repr=False)
class GeneratedJob(GeneratedGraph):
    """One sampled job."""

    def table_row(
        self, ranks: int | None, limits: Limits
    ) -> tuple[Mapping[str, Any], AttributedGraph]:
        """See ``GeneratedGraph.table_row``."""
        return self.entry({"ranks": job_ranks(self.graph, ranks, limits)}), self.graph

    def findings(self) -> Sequence[Finding]:
        """Return the rules that its traces break."""
        return check_workload(replace(self.workload(), source=self.name))

    def written_graph(self) -> AttributedGraph:
        """See ``GeneratedGraph.written_graph``."""
        workload = self.workload()
        if has_errors(check_workload(workload)):
            raise DataError(f"{self.name}: its traces break a rule.")
        return job_graph(self.name, rank_classes(workload), workload.groups, {})


@final
@dataclass(frozen=True, eq=False, repr=False)
class GeneratedProgram(GeneratedGraph):
    """One sampled program.

    Attributes:
        sizes: Wanted entries of its table of sizes; the others are drawn.
        drawn_with: The seed of the draw that was kept.
        checked: The program, if it has already been run.
        reached: Numbers that were asked of the program, and what it has.
        unmet: Why no program with these numbers was found, or "".
        is_copy: Whether it repeats a program of the data that must not be repeated.
        files: Its files, if ``EagerEncoder`` has made them.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    drawn_with: int | None = None
    checked: Program | None = None
    reached: tuple[TargetResult, ...] = ()
    unmet: str = ""
    is_copy: bool = False
    files: SampleFiles | None = None

    @cached_property
    def graph(self) -> AttributedGraph:
        """See ``GeneratedGraph.graph``."""
        graph = program_json.program_graph(self.program.to_json(), self.name)
        return replace(graph, conditions={**self.decoded.conditions, **graph.conditions})

    @cached_property
    def program(self) -> Program:
        """See ``GeneratedGraph.program``."""
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

    def workload(self, ranks: int | None = None) -> Workload:
        """See ``GeneratedGraph.workload``."""
        return self.derived(ranks).workload

    @cached_property
    def job_graph(self) -> AttributedGraph:
        """See ``GeneratedGraph.job_graph``."""
        return self.derived().graph

    def made_files(
        self, file_format: str, ranks: int | None, limits: Limits, targets: Targets | None = None
    ) -> SampleFiles:
        """See ``GeneratedGraph.made_files``."""
        if self.files is not None and self.files.graph.name == self.name:
            return self.files
        targets = targets or Targets()
        compute = requested_compute_model(targets)
        try:
            graph = self.graph
            if file_format != "et":
                return SampleFiles(graph, file_format, None)
            job = self.derived(ranks, targets.plan, compute)
        except (DataError, UsageError) as error:
            raise MissingSampleError(str(error)) from error
        require_few_ranks(job.workload.num_ranks, limits, self.name)
        return SampleFiles(graph, file_format, Unfolded(job.workload), job, targets)

    def entry(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """See ``GeneratedGraph.entry``."""
        found = super().entry({})
        found["conditions"] |= extra.get("job", {})
        if self.reached:
            found |= {"nodes": self.graph.num_nodes, "edges": len(self.graph.edges)}
        wanted = target_metadata(self.reached)
        rest = {name: value for name, value in extra.items() if name != "job"}
        return {**found, **({"wanted": wanted} if wanted else {}), **rest}

    def table_row(
        self, ranks: int | None, limits: Limits
    ) -> tuple[Mapping[str, Any], AttributedGraph]:
        """See ``GeneratedGraph.table_row``."""
        return self.entry({}), self.made_files("program", None, limits).graph

    def findings(self) -> Sequence[Finding]:
        """Return the rules that the program breaks."""
        return graph_findings(self.graph)


@dataclass(frozen=True)
class EagerEncoder:
    """Makes the files of programs in the process that draws them; a step takes as long as a draw.

    ``first`` is the number of the first sample in the run; the rest is as
    ``GeneratedGraph.made_files`` takes it.
    """

    file_format: str
    ranks: int | None
    limits: Limits
    targets: Targets | None
    first: int = 0

    def __call__(self, sample: GeneratedGraph, number: int) -> GeneratedGraph:
        """Return sample ``number`` after the first with its files, or without any it cannot have.

        Whoever writes it asks for them again and gets the reason.
        """
        named = replace(sample, name=sample_name(self.first + number))
        assert isinstance(named, GeneratedProgram)
        try:
            made = named.made_files(self.file_format, self.ranks, self.limits, self.targets)
        except LayerdagError:
            return named
        return replace(named, files=made)
