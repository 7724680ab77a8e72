"""What the samples give away, how near they are to real graphs, and what they are good for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from layerdag.api import attribute_views, weight_attacks
from layerdag.api.publication._split import FOR_SIMILARITY, FOR_USEFULNESS
from layerdag.api.publication.drawing import Drawn
from layerdag.api.publication.training import CrossFit
from layerdag.api.stages import (
    SimulatedWorkloads,
    decoded_jobs,
    simulate_stage,
    simulation_parts,
    transferred,
)
from layerdag.codec import AttributedGraph
from layerdag.datasets import GraphDataset, Split
from layerdag.datasets.schema import LABEL
from layerdag.errors import LayerdagError
from layerdag.evaluation import SimilarityReport, compare
from layerdag.evaluation.privacy import Attack, LeakRow, Novelty, Verdict, leak_series, novelty
from layerdag.evaluation.rules import StructureReport, check_structure
from layerdag.graph import DAG, GraphStatistics
from layerdag.report import Distribution, SystemTimes, median_ratio
from layerdag.sampling import GeneratedGraph, as_workload
from layerdag.surrogates import TransferReport
from layerdag.traces import Workload
from layerdag.training import LoadedCheckpoint

SIMULATED = 64
"""Jobs of each side that are simulated."""


@dataclass(frozen=True, eq=False)
class SampleEvaluation:
    """All figures on the samples that were kept.

    Attributes:
        structure: Rules on graphs.
        real_structure: The same of held-out graphs.
        novelty: Valid, unique, novel.
        leaks: Nearness and attacks by the number of samples.
        weights: Attacks on weights and schema, which stay with the owner.
        similarity: Distances beside those of real training graphs; None of too few.
        ratio: Median ratio at equal count; 1 is as near as real graphs are.
        ratio_with_copies: The same if copies had not been rejected.
        transfer: What predictors learn; None without enough labels.
        repairs: What was repaired when samples became traces.
        simulations: Distributions of simulated quantities.
        systems: Mean simulated times.
        failed: Samples that did not simulate to their end, with the reason.
        cross_fit: Membership attacks on models of folds; None if none were trained.
    """

    structure: StructureReport
    real_structure: StructureReport
    novelty: Novelty
    leaks: tuple[LeakRow, ...]
    weights: tuple[Attack, ...]
    similarity: SimilarityReport | None
    ratio: float | None
    ratio_with_copies: float | None
    transfer: TransferReport | None
    repairs: dict[str, int]
    simulations: tuple[Distribution, ...]
    systems: SystemTimes | None
    failed: tuple[str, ...]
    cross_fit: CrossFit | None = None

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict on nearness, and on each attack and inference on all samples."""
        if not self.leaks:
            return {}
        last = self.leaks[-1]
        return {
            "nearness": last.nearness.verdict,
            **{attack.name: attack.verdict for attack in last.attacks},
            **{read.name: read.verdict for read in last.inferences},
        }


def evaluate_samples(
    data: GraphDataset,
    real: Sequence[AttributedGraph],
    drawn: Drawn,
    kept: Sequence[GeneratedGraph],
    checkpoint: LoadedCheckpoint,
) -> SampleEvaluation:
    """Evaluate samples beside the real graphs.

    Args:
        data: The split real graphs.
        real: Held-out graphs in names and numbers, for simulation.
        drawn: Everything that was drawn.
        kept: What is to be published, at least one sample.
        checkpoint: What was sampled from.
    """
    train, held_out = data.graphs["train"], data.held_out
    dags = [sample.dag for sample in kept]
    statistics = GraphStatistics.measure(train, data.schema.sizes())
    structure = check_structure(dags, statistics, [sample.name for sample in kept])
    similarity = similarity_of(data, dags)
    others = [sample.dag for sample in drawn.with_copies]
    simulations, systems, failed, repairs = _simulated(data, real, kept)
    return SampleEvaluation(
        structure=structure,
        real_structure=check_structure(held_out, statistics),
        novelty=novelty(train, held_out, dags, structure.valid_B),
        leaks=leak_series(
            train,
            held_out,
            dags,
            measured=data.schema.measured_columns,
            numeric=data.schema.size_columns,
        ),
        weights=weight_attacks(checkpoint, data),
        similarity=similarity,
        ratio=median_ratio(similarity),
        ratio_with_copies=(
            median_ratio(similarity_of(data, others))
            if len(others) > len(kept)
            else median_ratio(similarity)
        ),
        transfer=_transfer(data, kept),
        repairs=repairs,
        simulations=simulations,
        systems=systems,
        failed=failed,
    )


def similarity_of(data: GraphDataset, dags: Sequence[DAG]) -> SimilarityReport | None:
    """Compare with all held-out graphs; None if there are too few on a side."""
    if len(data.held_out) < FOR_SIMILARITY or len(dags) < FOR_SIMILARITY:
        return None
    return compare(data.graphs["train"], data.held_out, dags, attribute_views(data.schema))


def _transfer(data: GraphDataset, kept: Sequence[GeneratedGraph]) -> TransferReport | None:
    """Fit predictors of the label; None where there are too few labels."""
    parts: dict[Split, list[DAG]] = {
        "train": [dag for dag in data.graphs["train"] if _has_label(dag)],
        "val": [],
        "test": [dag for dag in data.held_out if _has_label(dag)],
    }
    made = [sample for sample in kept if _has_label(sample.dag)]
    fewest = min(len(parts["train"]), len(parts["test"]), len(made))
    if fewest < FOR_USEFULNESS:
        return None
    labeled = replace(data, graphs={part: tuple(dags) for part, dags in parts.items()})
    try:
        return transferred(labeled, made)
    except LayerdagError:  # all labels alike, and the like: nothing to predict
        return None


def _has_label(dag: DAG) -> bool:
    return isinstance(dag.conditions.get(LABEL), float)


def _simulated(
    data: GraphDataset, real: Sequence[AttributedGraph], kept: Sequence[GeneratedGraph]
) -> tuple[tuple[Distribution, ...], SystemTimes | None, tuple[str, ...], dict[str, int]]:
    """Simulate real and synthetic jobs on the same small clusters."""
    if data.schema.kind != "trace":
        return (), None, (), {}
    made = decoded_jobs(sample.graph for sample in kept)
    repairs = made.repairs
    ours = simulate_stage(made.workloads[:SIMULATED], "simulating samples")
    theirs = simulate_stage(_real_workloads(real), "simulating real jobs")
    if not _takes_time(ours) or not _takes_time(theirs):
        return (), None, ours.failed, repairs
    drawn, times = simulation_parts(theirs, ours)
    return drawn, times, ours.failed, repairs


def _real_workloads(real: Sequence[AttributedGraph]) -> list[Workload]:
    """Return real jobs as traces, made from their graphs as those of samples are."""
    found = []
    for graph in real[:SIMULATED]:
        try:
            found.append(as_workload(graph).workload)
        except LayerdagError:  # a real job that our own form of traces cannot hold
            continue
    return found


def _takes_time(part: SimulatedWorkloads) -> bool:
    """Return whether anything ran, and took time."""
    return bool(part.num_ranks.size) and bool((part.makespan_ns > 0).all())
