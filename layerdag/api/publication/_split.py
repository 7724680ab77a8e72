"""Splitting jobs by run, so that every later test has as many held-out graphs as it can have."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layerdag._runtime import derive_seed, numpy_generator
from layerdag.api.publication.reading import FoundJobs
from layerdag.codec import AttributedGraph
from layerdag.datasets import GraphDataset, Split
from layerdag.evaluation.metrics import NORMAL_95
from layerdag.evaluation.privacy import MARGIN, chance_half_width

LEAST_RUNS = 8
"""Distinct runs below which nothing is trained: each part would hold one or two graphs."""
LEAST_SHARE, MOST_SHARE = 0.2, 0.4
"""Of the runs that are held out, for validation and test together."""
FOR_SIMILARITY, FOR_USEFULNESS = 8, 20


@dataclass(frozen=True)
class Need:
    """How many graphs a test needs.

    Attributes:
        test: What is tested, in words.
        needed: Graphs of that part that it needs.
        found: Graphs there are.
        part: Which graphs: "held-out graphs", "labeled held-out graphs", "distinct runs".
    """

    test: str
    needed: int
    found: int
    part: str = "held-out graphs"

    @property
    def is_met(self) -> bool:
        """Whether there are enough."""
        return self.found >= self.needed

    def sentence(self) -> str:
        """Return the need as a line."""
        verdict = "enough" if self.is_met else "too few to tell"
        return f"{self.test}: {self.found:,} {self.part}, needs {self.needed:,}: {verdict}"


def held_out_of(runs: int) -> int:
    """Return the number of runs to hold out: as few as an audit needs, else all that may be.

    An attack is only distinguishable from chance if the interval of a score that says nothing
    is within ``MARGIN`` of one half (``layerdag.evaluation.privacy``).
    """
    least, most = round(LEAST_SHARE * runs), round(MOST_SHARE * runs)
    for held in range(max(least, 1), most):
        if chance_half_width(runs - held, held) <= MARGIN:
            return held
    return max(most, min(2, runs - 1))


def runs_for_membership() -> int:
    """Return the smallest number of runs from which on a membership attack can be told."""
    low, high = LEAST_RUNS, 4096
    while low < high:
        middle = (low + high) // 2
        held = round(MOST_SHARE * middle)
        if chance_half_width(middle - held, held) <= MARGIN:
            high = middle
        else:
            low = middle + 1
    return low


def runs_for_cross_fitting(folds: int) -> int:
    """Return the number of runs from which on a cross-fitted membership attack can be told.

    The spread of a score that says nothing, independent in each fold (``pooled_attack``).
    """
    runs = LEAST_RUNS
    while folded_half_width(runs, folds) > MARGIN:
        runs += 1
    return runs


def folded_half_width(runs: int, folds: int) -> float:
    """Return the 95 % half-width of the cross-fitted area of a score that says nothing."""
    held = runs / folds
    variance = (runs + 1) / (12 * (runs - held) * held * folds)
    return NORMAL_95 * math.sqrt(variance)


def split_jobs(jobs: FoundJobs, seed: int) -> dict[Split, list[AttributedGraph]]:
    """Return the graphs of each part; those of one run are in one part.

    The split depends on the seed and on what the graphs are, not on names or order. It is
    stratified: runs are put in an order of likeness (see ``runs_by_likeness``) and cut into as many
    blocks as there are runs to hold out, of each of which one run is drawn. With few runs a plain
    draw may hold out one family and train on another, and every attack would tell that apart. A
    corpus comes with its own split.
    """
    if jobs.parts:
        return _given_parts(jobs)
    runs = runs_by_likeness(jobs, seed)
    rng = numpy_generator(seed, "release split")
    held = [str(rng.choice(block)) for block in np.array_split(runs, held_out_of(len(runs)))]
    pairs = zip(held[::2], held[1::2], strict=False)  # a last one without partner is for the test
    for_validation = {str(rng.choice(pair)) for pair in pairs} or set(held[:1])
    part: dict[str, Split] = dict.fromkeys(runs, "train")
    part |= {run: "val" if run in for_validation else "test" for run in held}
    parts: dict[Split, list[AttributedGraph]] = {"train": [], "val": [], "test": []}
    for graph, run in zip(jobs.graphs, jobs.runs, strict=True):
        parts[part[run]].append(graph)
    return parts


def runs_by_likeness(jobs: FoundJobs, seed: int) -> list[str]:
    """Return the distinct runs, like ones next to each other.

    By family, where it is known; within one along the first principal component of the square
    roots of the operators' frequencies, and then by size.
    """
    first_of = {run: i for i, run in reversed(list(enumerate(jobs.runs)))}
    runs = sorted(first_of, key=lambda run: derive_seed(seed, "release split", run))
    graphs = [jobs.graphs[first_of[run]] for run in runs]
    family_of = [str(graph.conditions.get("family", "")) for graph in graphs]
    component = _first_component(graphs)
    keys = zip(
        family_of, component, (graph.num_nodes for graph in graphs), range(len(runs)), strict=True
    )
    return [runs[key[-1]] for key in sorted(keys)]


def _first_component(graphs: Sequence[AttributedGraph]) -> list[float]:
    """Return a coordinate of each graph that is alike for graphs of like operators."""
    columns = [next(iter(graph.categories.values())) for graph in graphs]
    code_of = {name: i for i, name in enumerate(sorted({n for names in columns for n in names}))}
    count_GK = np.zeros((len(graphs), len(code_of)))
    for row, names in enumerate(columns):
        np.add.at(count_GK[row], [code_of[name] for name in names], 1.0)
    root_GK = np.sqrt(count_GK / count_GK.sum(axis=1, keepdims=True))
    centered_GK = root_GK - root_GK.mean(axis=0)
    axis_K = np.linalg.svd(centered_GK, full_matrices=False)[2][0]
    sign = 1.0 if axis_K[np.argmax(np.abs(axis_K))] > 0 else -1.0
    component: list[float] = np.round(sign * centered_GK @ axis_K, 6).tolist()
    return component


def _given_parts(jobs: FoundJobs) -> dict[Split, list[AttributedGraph]]:
    """Return the split of a corpus; repetitions of a run follow the first of them."""
    part: dict[str, Split] = {}
    parts: dict[Split, list[AttributedGraph]] = {"train": [], "val": [], "test": []}
    for graph, run in zip(jobs.graphs, jobs.runs, strict=True):
        parts[part.setdefault(run, jobs.parts.get(graph.name, "train"))].append(graph)
    return parts


def dataset_of(jobs: FoundJobs, seed: int) -> GraphDataset:
    """Return the split jobs as codes; what the training part cannot express is left out."""
    return GraphDataset.build("traces", jobs.kind, split_jobs(jobs, seed))


def run_of_graphs(jobs: FoundJobs) -> Mapping[str, str]:
    """Return the run of each graph by its name."""
    return dict(zip((graph.name for graph in jobs.graphs), jobs.runs, strict=True))


def needs_of(data: GraphDataset, runs: int, labeled: Sequence[bool]) -> tuple[Need, ...]:
    """Return what each test needs and has.

    Args:
        data: The split graphs.
        runs: Number of distinct runs.
        labeled: Whether each held-out graph has a label.
    """
    train, held = len(data.graphs["train"]), len(data.held_out)
    needed = held
    while chance_half_width(max(train, 1), max(needed, 1)) > MARGIN and needed < 10_000:
        needed += 1
    test = "membership attacks, distinguishable from chance"
    if needed >= 10_000:
        membership = Need(test, runs_for_membership(), runs, "distinct runs")
    else:
        membership = Need(test, needed, held)
    return (
        membership,
        Need("similarity to real graphs", FOR_SIMILARITY, held),
        Need("usefulness for predictors", FOR_USEFULNESS, sum(labeled), "labeled held-out graphs"),
    )
