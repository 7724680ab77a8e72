"""Do jobs keep the rules of whole training steps, and can a classifier tell samples by job?

The rules are those of ``validation.whole_program``. They need exact numbers, which codes do not
hold (edges of bins are rounded), so these metrics judge the jobs themselves: at those that a data
set was read from, and at samples as they were drawn.

The classifier of jobs is a forest of extremely randomized trees (Geurts et al., Machine Learning
2006) on one row for each job, evaluated on folds that it did not see. The figure is the chance that
a sample scores higher than a held-out real job (AUROC): 0.5 is indistinguishable. Beside it stands
the same figure of real training jobs. Jobs of one structure are in one fold: else a job is
recognized by its twin in another size, and real training jobs have 0.6 instead of 0.5.

There are two sets of features: what a job looks like from outside (counts by kind, depth, width,
unused results, durations, critical path, how many costs differ), and for each rule the share of its
cases that keep it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, final

import numpy as np

from layerdag.codec.placement import fitting_ranks
from layerdag.codec.unfolding import unfold
from layerdag.dag.program_numbers import program_numbers
from layerdag.datasets.conversion import GraphLike, attributed_graph, is_job, of_kind
from layerdag.errors import DataError, LayerdagError
from layerdag.evaluation.metrics.base import (
    Comparison,
    Draws,
    Goal,
    Jobs,
    Metric,
    MetricResult,
    SimilarityRow,
)
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.topology import longest_path, longest_path_layers
from layerdag.hardware.operators import (
    ACTIVATIONS,
    ATTENTION,
    COPIES,
    NORMS,
    PRODUCTS,
    SUMS,
    UPDATES,
    base_name,
)
from layerdag.kinds.job import JOB
from layerdag.runtime.rng import derive_seed, numpy_generator
from layerdag.samples.stored import StoredSample
from layerdag.statistics import Interval, auroc
from layerdag.traces.trace import Trace, Workload
from layerdag.validation.whole_program import WHOLE_PROGRAM_RULES, Verdict, judge_program

MAX_JOBS = 200
"""Most jobs of a set that are judged, drawn at random from larger ones."""
MIN_JOBS = 20
"""Jobs of a set that a classifier needs at least."""
FOLDS = 5
_TREES = 150
_ABSENT = -1.0


def as_job(thing: GraphLike) -> Workload:
    """Return the traces of a job of any kind; the condition "world_size" says on how many ranks.

    Raises:
        UsageError: If it is not a graph.
        DataError: If it is not a job, or cannot be read.
    """
    if isinstance(thing, StoredSample) and thing.is_job:
        return thing.workload()
    if isinstance(thing, Workload):
        return thing
    if isinstance(thing, Trace):
        return Workload((thing,))
    graph = attributed_graph(thing)
    try:
        wanted = int(float(graph.conditions.get("world_size", 1)))
    except ValueError as error:
        raise DataError(f"{graph.name}: has no number of ranks ({error}).") from None
    return unfold(graph, fitting_ranks(graph, max(wanted, 1))).workload


def jobs_beside(
    train: Sequence[GraphLike], test: Sequence[GraphLike], samples: Sequence[GraphLike]
) -> Jobs | None:
    """Return three sets of jobs for ``compare``; None if some are not steps of PyTorch.

    None also where a set is empty or has codes alone.
    """
    train, test, samples = ([of_kind(g, JOB) for g in part] for part in (train, test, samples))
    sets = (train, test, samples)
    if not all(len(things) and all(map(_has_numbers, things)) for things in sets):
        return None
    operators = [word for job in test[:MAX_JOBS] for word in attributed_graph(job).categories["op"]]
    known = sum(word.startswith("aten::") for word in operators)
    return sets if 2 * known > len(operators) else None


def _has_numbers(thing: GraphLike) -> bool:
    if isinstance(thing, StoredSample):
        return thing.is_job
    if isinstance(thing, AttributedGraph):
        return {"op", "stage", "type"} <= set(thing.categories)
    return is_job(thing)


@dataclass(frozen=True, eq=False)
class JudgedJobs:
    """What rules and features say of a set of jobs.

    Attributes:
        verdicts: Of each job, by the rule's id; only rules that apply.
        left_out: Jobs that have no traces, with the reason.
    """

    verdicts: tuple[Mapping[str, Verdict], ...]
    features_BF: np.ndarray
    graphs: tuple[AttributedGraph, ...]
    left_out: tuple[str, ...] = ()

    @property
    def kept_B(self) -> np.ndarray:
        """Whether each job keeps all rules that apply to it, of which there is one at least."""
        kept = [bool(job) and all(v.holds for v in job.values()) for job in self.verdicts]
        return np.array(kept, dtype=bool)

    def shares(self) -> dict[str, float]:
        """Return for each rule the share of the jobs to which it applies that keep it."""
        found = {}
        for name in WHOLE_PROGRAM_RULES:
            holds = [job[name].holds for job in self.verdicts if name in job]
            if holds:
                found[name] = float(np.mean(holds))
        return found

    def rule_features_BF(self) -> np.ndarray:
        """Return the share of cases that keep each rule, -1 where the rule does not apply."""
        rows = [
            [
                1 - len(job[name].nodes) / max(job[name].cases, 1) if name in job else _ABSENT
                for name in WHOLE_PROGRAM_RULES
            ]
            for job in self.verdicts
        ]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(WHOLE_PROGRAM_RULES))


def judge_jobs(things: Sequence[GraphLike], seed: int = 0, label: str = "") -> JudgedJobs:
    """Judge jobs by the rules of whole programs, at most ``MAX_JOBS`` of them."""
    chosen = list(range(len(things)))
    if len(chosen) > MAX_JOBS:
        rng = numpy_generator(seed, "judged jobs", label)
        chosen = sorted(rng.choice(len(chosen), MAX_JOBS, replace=False).tolist())
    verdicts, features, graphs, left_out = [], [], [], []
    for at in chosen:
        try:
            graph, job = attributed_graph(things[at]), as_job(things[at])
            verdict = judge_program(job)
        except LayerdagError as error:
            left_out.append(str(error))
            continue
        verdicts.append(verdict)
        features.append(job_features(graph))
        graphs.append(graph)
    return JudgedJobs(tuple(verdicts), np.array(features), tuple(graphs), tuple(left_out))


def structures(jobs: Sequence[AttributedGraph]) -> np.ndarray:
    """Return the number of each job's structure, int64 (B,): its operators and edges, no sizes.

    All differ where there are fewer structures than ``MIN_JOBS``: too few to learn from some and
    to judge others.
    """
    found_B = program_numbers([replace(graph, numbers={}) for graph in jobs])
    return found_B if len(np.unique(found_B)) >= MIN_JOBS else np.arange(len(jobs))


_KINDS: Mapping[str, frozenset[str]] = {
    "products": frozenset(PRODUCTS),
    "norms": frozenset((*NORMS, *(f"{name}_backward" for name in NORMS))),
    "attention": frozenset((*ATTENTION, *(f"{name}_backward" for name in ATTENTION))),
    "activations": frozenset((*ACTIVATIONS, *(f"{name}_backward" for name in ACTIVATIONS))),
    "copies": frozenset(COPIES),
    "reductions": frozenset(SUMS),
    "optimizer": frozenset(UPDATES),
}


def job_features(graph: AttributedGraph) -> np.ndarray:
    """Return what a job looks like from outside, float64 (F,)."""
    nodes = max(graph.num_nodes, 1)
    source_E, target_E = graph.edge_index_2E
    layer_N = longest_path_layers(graph.num_nodes, graph.edge_index_2E)
    out_N = np.bincount(source_E, minlength=graph.num_nodes)
    in_N = np.bincount(target_E, minlength=graph.num_nodes)
    operators = [base_name(word) for word in graph.categories["op"]]
    flops_N, bytes_N, sent_N, duration_N = (
        np.nan_to_num(graph.numbers.get(name, np.zeros(graph.num_nodes)))
        for name in ("flops", "bytes", "comm_bytes", "duration")
    )
    path = longest_path(layer_N, graph.edge_index_2E, duration_N)
    kinds = [np.array([name in names for name in operators]) for names in _KINDS.values()]
    communicates_N = np.array([word != "COMP" for word in graph.categories["type"]])
    costs = list(zip(operators, flops_N.tolist(), bytes_N.tolist(), strict=True))
    products = [cost for cost, is_one in zip(costs, kinds[0].tolist(), strict=True) if is_one]
    total = float(duration_N.sum())
    return np.array(
        [
            np.log(nodes),
            source_E.size / nodes,
            layer_N.max(initial=0) + 1,
            nodes / (layer_N.max(initial=0) + 1),
            np.bincount(layer_N, minlength=1).max(),
            (out_N == 0).mean(),
            ((out_N == 0) & (in_N == 0)).mean(),
            (in_N == 0).mean(),
            ((out_N == 0) & ~kinds[-1]).mean(),
            len(set(costs)) / nodes,
            len(set(products)) / max(len(products), 1),
            *np.log1p([total, duration_N.max(initial=0), path.finish_N.max(initial=0)]),
            path.finish_N.max(initial=0) / max(total, 1e-12),
            *np.log1p([flops_N.sum(), flops_N.max(initial=0), bytes_N.sum(), sent_N.sum()]),
            communicates_N.mean(),
            np.mean(["_backward" in name for name in operators]),
            *(of_kind.mean() for of_kind in kinds),
        ],
        dtype=np.float64,
    )


def _judged(comparison: Comparison) -> tuple[JudgedJobs, JudgedJobs, JudgedJobs]:
    """Return training, test and generated jobs, judged."""
    if comparison.jobs is None:
        raise DataError("Only codes are at hand, whose numbers are rounded; compare jobs.")
    names = ("train", "test", "generated")
    sets = [
        judge_jobs(things, comparison.seed, name)
        for things, name in zip(comparison.jobs, names, strict=True)
    ]
    for found, name in zip(sets, names, strict=True):
        if not found.verdicts:
            why = f": {found.left_out[0]}" if found.left_out else "."
            raise DataError(f"No {name} job has traces{why}")
    train, test, generated = sets
    return train, test, generated


@final
@dataclass(frozen=True)
class WholeProgramRules(Metric):
    """Share of jobs that keep all rules of whole programs; beside it that of real test jobs.

    The breakdown has the counts, and for each rule the share of jobs to which it applies.
    """

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the share of generated and of test jobs."""
        _, test, generated = comparison.once(_judged)
        return SimilarityRow(_kept(self, generated), _kept(self, test), None, None)


def _kept(metric: Metric, jobs: JudgedJobs) -> MetricResult:
    kept, count = int(jobs.kept_B.sum()), len(jobs.verdicts)
    counts = {"jobs": float(count), "kept": float(kept)}
    interval = Interval.wilson(kept / count, count)
    return MetricResult(metric, kept / count, interval, counts | jobs.shares())


@final
@dataclass(frozen=True)
class JobClassifier(Metric):
    """AUROC of trees on generated vs test jobs; beside it training vs test jobs.

    It has no ratio, since sets that are alike give 0.5.
    """

    features: Literal["counts", "rules"] = field(kw_only=True)

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return both AUROCs, each with a bootstrap over jobs."""
        train, test, generated = comparison.once(_judged)
        found: list[Draws] = []
        for other in (generated, train):
            other_BF, real_BF = (
                jobs.features_BF if self.features == "counts" else jobs.rule_features_BF()
                for jobs in (other, test)
            )
            area_R = job_auroc(
                other_BF,
                real_BF,
                structures([*other.graphs, *test.graphs]),
                seed=comparison.seed,
                replicates=comparison.replicates,
            )
            found.append((area_R, {}))
        return SimilarityRow.of_bootstraps(self, *found)


def job_auroc(
    other_BF: np.ndarray,
    real_BF: np.ndarray,
    structure_B: np.ndarray,
    *,
    seed: int,
    replicates: int,
) -> np.ndarray:
    """Return the AUROC of telling one set of jobs from another, then its bootstrap draws.

    Each job is scored by trees that were fitted on the other folds. The bootstrap draws structures.

    Raises:
        DataError: If a set has fewer than ``MIN_JOBS`` jobs.
    """
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.model_selection import StratifiedGroupKFold

    counts = len(other_BF), len(real_BF)
    if min(counts) < MIN_JOBS:
        raise DataError(
            f"The classifier of jobs needs at least {MIN_JOBS} jobs of each set, found "
            f"{min(counts)}."
        )
    x_BF = np.concatenate([other_BF, real_BF])
    is_other_B = np.repeat([1, 0], counts)
    score_B = np.zeros(len(x_BF))
    state = derive_seed(seed, "job classifier") % 2**32
    folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=state)
    for fit, held in folds.split(x_BF, is_other_B, structure_B):
        trees = ExtraTreesClassifier(
            _TREES, min_samples_leaf=2, class_weight="balanced", random_state=state
        )
        score_B[held] = trees.fit(x_BF[fit], is_other_B[fit]).predict_proba(x_BF[held])[:, 1]
    rng = numpy_generator(seed, "bootstrap of jobs")
    areas = [auroc(score_B[: counts[0]], score_B[counts[0] :])]
    structures_of = []
    for one in (1, 0):
        row_R = np.flatnonzero(is_other_B == one)
        order_R = row_R[np.argsort(structure_B[row_R], kind="stable")]
        ends = np.flatnonzero(np.diff(structure_B[order_R])) + 1
        structures_of.append(np.split(order_R, ends))
    for _ in range(replicates):
        other, real = (
            score_B[np.concatenate([of[at] for at in rng.integers(0, len(of), len(of))])]
            for of in structures_of
        )
        areas.append(auroc(other, real))
    return np.array(areas)


JOB_METRICS: tuple[Metric, ...] = (
    WholeProgramRules(
        "whole_program_rules",
        "jobs that keep all rules of whole training steps",
        Goal.MATCH_REAL,
        upper=1.0,
    ),
    JobClassifier(
        "job_classifier:counts",
        "AUROC of trees on counts and costs and times of jobs, 0.5 is indistinguishable",
        Goal.MINIMIZE,
        upper=1.0,
        features="counts",
    ),
    JobClassifier(
        "job_classifier:rules",
        "AUROC of trees on how far jobs keep each rule, 0.5 is indistinguishable",
        Goal.MINIMIZE,
        upper=1.0,
        features="rules",
    ),
)
"""Metrics of jobs with exact numbers."""
