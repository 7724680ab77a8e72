"""All stages of the demo in order, and the report of what they found."""

import json
import time
from dataclasses import dataclass
from functools import partial

import numpy as np

from layerdag._runtime import atomic_folder
from layerdag.api import attribute_views, stages as evaluating
from layerdag.api.stages import DecodedJobs, SimulatedWorkloads
from layerdag.cli.demo import _stages as stages
from layerdag.cli.demo._folder import DEMO_SAMPLES, REPORT, SAMPLES, held_demo
from layerdag.cli.demo._provenance import caveats, provenance, training
from layerdag.cli.demo._stages import DemoSettings, timed
from layerdag.cli.demo._start import load_stage
from layerdag.codec import repair_in_words
from layerdag.datasets import GraphDataset
from layerdag.evaluation import DepthSimilarity, SimilarityReport, compare, compare_by_depth
from layerdag.evaluation.privacy import (
    Attack,
    LeakRow,
    Novelty,
    leak_series,
    likelihood_attack,
    novelty,
)
from layerdag.evaluation.rules import StructureReport, check_structure, check_workload, has_errors
from layerdag.graph import DAG, GraphStatistics
from layerdag.report import (
    CategoryFractions,
    Distribution,
    ReportContent,
    SummaryRow,
    SystemTimes,
    attribute_shares,
    likeness,
    median_ratio,
    sharing,
    structure_distributions,
    summary_rows,
    usefulness_of,
    write_report,
)
from layerdag.sampling import GeneratedGraph
from layerdag.traces import Workload, read_index, read_runs, write_workload
from layerdag.training import LoadedCheckpoint
from layerdag.viz import Picture, number, percent

WRITTEN_SAMPLES = 8


def report(settings: DemoSettings, *, as_json: bool) -> None:
    """Run all stages, write the report, and print the summary as a table or as JSON."""
    with held_demo(settings.out):
        content = _content(settings)
        page = write_report(content, settings.out / REPORT)
    if as_json:
        rows = [{"what": r.what, "synthetic": r.synthetic, "real": r.real} for r in content.summary]
        print(json.dumps({"report": str(page), "summary": rows}))
    else:
        _print_table(content.summary)
        print(f"\nreport: {page}")


def _content(settings: DemoSettings) -> ReportContent:
    """Run the stages in order and gather what the report shows."""
    seconds: dict[str, float] = {}
    now = time.perf_counter()
    data, warm = load_stage(settings)
    now = timed(seconds, "load", now)
    checkpoint, trained = stages.train_stage(settings, data, warm)
    # Further jobs are no part of the split: samples are compared with the corpus alone.
    data = data.without_further()
    now = timed(seconds, "train", now)
    samples = stages.sample_stage(settings, data, checkpoint)
    now = timed(seconds, "sample", now)
    fits = partial(
        evaluating.transferred,
        data, samples, families=settings.families, seeds=settings.surrogate_seeds,
    )  # fmt: skip
    surrogates = evaluating.begin_beside(fits) if settings.processes > 1 else fits
    evaluation = _evaluated(data, samples, checkpoint)
    real = _test_workloads(settings, data)
    made = evaluating.decoded_jobs(sample.graph for sample in samples)
    trace_row = _trace_row(settings, data, real, made)
    now = timed(seconds, "evaluate", now)
    simulation = _simulated(real, made.workloads)
    now = timed(seconds, "simulate", now)
    transferred = surrogates()
    timed(seconds, "surrogate", now)
    rows = summary_rows(
        evaluation.structure,
        evaluation.real_structure,
        evaluation.novelty,
        evaluation.similarity,
        transferred,
    )
    dags = tuple(sample.dag for sample in samples)
    alike = evaluating.neighbors_of(data, dags)
    return ReportContent(
        title="Synthetic execution traces",
        lead=f"{len(samples)} jobs sampled from a small model that was trained on "
        f"{len(data.graphs['train'])} collected training and inference steps"
        f"{'' if warm is None else ', from the weights of the shipped checkpoint on'}, next to "
        f"{len(data.graphs['test'])} jobs it never saw.",
        answers=(
            sharing(evaluation.novelty, evaluation.leaks),
            likeness(median_ratio(evaluation.similarity)),
            usefulness_of(transferred),
        ),
        summary=(*rows[:2], trace_row, *rows[2:], *simulation.rows),
        structure=evaluation.structure,
        real_structure=evaluation.real_structure,
        novelty=evaluation.novelty,
        leaks=evaluation.leaks,
        weight_attacks=evaluation.weight_attacks,
        similarity=evaluation.similarity,
        depth=evaluation.depth,
        distributions=evaluation.distributions,
        shares=evaluation.shares,
        transfer=transferred,
        target="step time in seconds",
        repairs=tuple((repair_in_words(name), count) for name, count in made.repairs.items()),
        simulations=simulation.distributions,
        systems=simulation.times,
        neighbors=alike,
        timelines=evaluating.timelines_of(data, data.graphs["test"], dags),
        simulated_on=next(iter(evaluating.systems())),
        pictures=() if alike else _pictures(data, dags),
        provenance=(
            *training(settings, trained, checkpoint.meta.step, warm),
            *provenance(settings, data, seconds),
        ),
        caveats=caveats(settings, trained, warm),
    )


@dataclass(frozen=True, eq=False)
class _Evaluation:
    """What the validator says of the samples."""

    structure: StructureReport
    real_structure: StructureReport
    novelty: Novelty
    leaks: tuple[LeakRow, ...]
    weight_attacks: tuple[Attack, ...]
    similarity: SimilarityReport
    depth: tuple[DepthSimilarity, ...]
    distributions: tuple[Distribution, ...]
    shares: tuple[CategoryFractions, ...]


@dataclass(frozen=True, eq=False)
class _Simulation:
    """What the simulator says of real and of synthetic jobs."""

    rows: tuple[SummaryRow, ...]
    distributions: tuple[Distribution, ...]
    times: SystemTimes | None


def _evaluated(
    data: GraphDataset, samples: tuple[GeneratedGraph, ...], checkpoint: LoadedCheckpoint
) -> _Evaluation:
    """Check structure, similarity and copying of the samples."""
    train, test = data.graphs["train"], data.graphs["test"]
    dags = tuple(sample.dag for sample in samples)
    views = attribute_views(data.schema)
    statistics = GraphStatistics.measure(train, data.schema.sizes())
    structure = check_structure(dags, statistics, [sample.name for sample in samples])
    return _Evaluation(
        structure=structure,
        real_structure=check_structure(test, statistics),
        novelty=novelty(train, test, dags, structure.valid_B),
        leaks=leak_series(train, data.held_out, dags, measured=data.schema.measured_columns),
        weight_attacks=(likelihood_attack(checkpoint.model, data.schema, train, data.held_out),),
        similarity=compare(train, test, dags, views),
        depth=compare_by_depth(train, test, dags, views),
        distributions=structure_distributions(train, test, dags, views),
        shares=attribute_shares(train, test, dags, views, evaluating.vocabularies(data)),
    )


def _pictures(data: GraphDataset, dags: tuple[DAG, ...]) -> tuple[Picture, ...]:
    """Draw a real test graph of middling size and the sample nearest to it in size."""
    sizes_B = np.array([dag.num_nodes for dag in data.graphs["test"]])
    real = data.graphs["test"][int(np.argsort(sizes_B)[sizes_B.size // 3])]
    nearest = min(dags, key=lambda dag: abs(dag.num_nodes - real.num_nodes))
    return (
        evaluating.picture_of(data, real, "real test job"),
        evaluating.picture_of(data, nearest, "sampled job"),
    )


def _test_workloads(settings: DemoSettings, data: GraphDataset) -> list[Workload]:
    """Return the test jobs as they were collected."""
    wanted = set(data.names["test"])
    records = [record for record in read_index(settings.data) if record.run in wanted]
    return [run.workload() for run in read_runs(settings.data, records)]


def _trace_row(
    settings: DemoSettings, data: GraphDataset, real: list[Workload], made: DecodedJobs
) -> SummaryRow:
    """Check the decoded traces by the rules of their consumers, and write some of them."""
    with atomic_folder(settings.out / SAMPLES, DEMO_SAMPLES, overwrite=True) as folder:
        for workload in made.workloads[:WRITTEN_SAMPLES]:
            write_workload(workload, folder / workload.source / workload.source)
    tests = evaluating.decoded_jobs(map(data.schema.decode, data.graphs["test"]))
    return SummaryRow(
        "jobs whose traces keep every rule",
        percent(_rule_share(made.workloads)),
        percent(_rule_share(real)),
        f"after {sum(made.repairs.values()):,} repairs while decoding; real jobs decoded alike: "
        f"{sum(tests.repairs.values()):,}. Completed: {_per_job(made)} times per job, real "
        f"{_per_job(tests)}",
    )


def _per_job(made: DecodedJobs) -> str:
    """Return how often decoding completed a job, in the mean."""
    return f"{sum(made.completions.values()) / max(len(made.workloads), 1):.2f}"


def _rule_share(workloads: list[Workload]) -> float:
    """Return the share of jobs without an error by the rules on traces."""
    return float(np.mean([not has_errors(check_workload(workload)) for workload in workloads]))


def _simulated(real: list[Workload], synthetic: list[Workload]) -> _Simulation:
    """Simulate real test jobs and synthetic ones on small clusters."""
    simulated = evaluating.simulate_stage(real, "simulating real jobs")
    made = evaluating.simulate_stage(synthetic, "simulating synthetic jobs")
    parts, times = evaluating.simulation_parts(simulated, made)
    rows = [
        SummaryRow(
            "jobs that simulate to their end",
            percent(1 - len(made.failed) / len(synthetic)),
            percent(1 - len(simulated.failed) / len(real)),
            made.failed[0][:90] if made.failed else "on all systems",
        ),
        SummaryRow(
            "median simulated makespan, ms",
            _median_ms(made),
            _median_ms(simulated),
            f"on {next(iter(evaluating.systems()))}",
        ),
    ]
    return _Simulation(tuple(rows), parts, times)


def _median_ms(part: SimulatedWorkloads) -> str:
    """Return the median makespan on the first system, or a dash where nothing ran."""
    makespan_ns = part.makespan_ns[0]
    return number(float(np.median(makespan_ns)) / 1e6) if makespan_ns.size else "-"


def _print_table(rows: tuple[SummaryRow, ...]) -> None:
    """Print the summary, one line per row."""
    table = [("", "synthetic", "real"), *((row.what, row.synthetic, row.real) for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(3)]
    for what, synthetic, real in table:
        print(f"{what:<{widths[0]}}  {synthetic:>{widths[1]}}  {real:>{widths[2]}}")
