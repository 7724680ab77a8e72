"""The main job end to end, for ``layerdag demo``: train, sample, derive steps, judge, report."""

import contextlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.programs import load_programs, program_rows
from layerdag.datasets.run_plans import run_plans
from layerdag.datasets.settings import ProgramsConfig
from layerdag.errors import UsageError, VocabularyError
from layerdag.evaluation.metrics.base import attribute_views
from layerdag.evaluation.metrics.whole_programs import jobs_beside
from layerdag.evaluation.similarity import compare, compare_by_depth
from layerdag.evaluation.validity import check_structure
from layerdag.graph.attributed_graph import LABEL, AttributedGraph, Split
from layerdag.graph.formats.program_json import SUFFIX
from layerdag.privacy.copies import novelty
from layerdag.privacy.membership import likelihood_attack
from layerdag.privacy.sample_leaks import sample_leaks
from layerdag.programs.forward_program import Program
from layerdag.report.content import (
    ReportContent,
    SummaryRow,
    median_ratio,
    privacy_verdict,
    similarity_verdict,
    utility_verdict,
)
from layerdag.report.gather import (
    SimulatedWorkloads,
    attribute_shares,
    neighbors_of,
    simulate_stage,
    simulation_parts,
    structure_distributions,
    summary_rows,
    systems,
    timelines_of,
    transferred,
    vocabularies,
)
from layerdag.report.page import require_replaceable_report, write_report
from layerdag.report.words import fits
from layerdag.runtime.files import LOCK, FolderKind, atomic_folder, file_lock, require_replaceable
from layerdag.runtime.terminal import track
from layerdag.samples.writer import why_not_sampled_jobs
from layerdag.sampling.generated import GeneratedGraph, GeneratedJob, GeneratedProgram
from layerdag.sampling.generation import generate
from layerdag.sampling.settings import GenerationSettings
from layerdag.sampling.step_derivation import DerivedJob, derive_drawn_job, derive_job
from layerdag.schema.size_tables import FAMILY
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import MeasuredCompute, PredictedCompute
from layerdag.simulator.config import NetworkConfig, SystemConfig
from layerdag.simulator.learned import OperatorTrees
from layerdag.simulator.run import simulate
from layerdag.traces.chakra.corpus import embedded_corpus, read_index, read_runs
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.trace import Workload
from layerdag.training.checkpoint import (
    BEST,
    LAST,
    LoadedCheckpoint,
    load_checkpoint,
    pretrained_checkpoint,
)
from layerdag.training.loop import train
from layerdag.training.run import TrainResult, assemble
from layerdag.training.run_folder import require_free
from layerdag.training.settings import LearningRateSchedule, OptimizerConfig, TrainSettings
from layerdag.training.warm_start import warm_start
from layerdag.validation.checking import check_workload
from layerdag.validation.rules import has_errors
from layerdag.version import __version__
from layerdag.viz.numbers import number, percent

TRAINING, SAMPLES, REPORT = "training", "samples", "report.html"
DEMO_SAMPLES = FolderKind("samples of the demo", why_not_sampled_jobs)
PROGRAMS = "programs"
"""Name of the shipped checkpoint, and of the folder of programs in a corpus."""
_REAL: tuple[Split, ...] = ("train", "test")
CAVEATS = (
    "The figures are not those of the steps above alone: the weights that they started from had "
    "been trained before.",
    "The scale of every distance is the same distance between real training and real test jobs; "
    "with this many graphs a ratio is uncertain, see the intervals.",
    "Copy tests and membership attacks that find nothing are no proof of safety.",
    "Step times are simulated, from times of operators as the collected runs have them; surrogates "
    "do not see these.",
)


@dataclass(frozen=True)
class DemoSettings:
    """How large the demo is.

    Attributes:
        out: Folder of everything it writes.
        seed: Of training and sampling.
        max_nodes: Programs of more calls are left out.
        steps: Optimizer steps after a start from the shipped checkpoint. No limit of time is set
            beside them, so that the same model comes out on a slow machine as on a fast one.
        samples: Number of programs sampled, and most real ones whose steps are compared with them.
        families: Families of surrogates.
        processes: Of sampling.
    """

    out: Path
    seed: int = 0
    max_nodes: int = 600
    steps: int = 40
    samples: int = 192
    families: tuple[str, ...] = ("boosting", "message_passing")
    processes: int = 2

    @classmethod
    def short(cls, out: Path, seed: int) -> "DemoSettings":
        """Return the settings of the small version."""
        return cls(out, seed, 120, 10, 48, ("boosting",), 1)


@contextlib.contextmanager
def demo_lock(out: Path) -> Iterator[None]:
    """Hold the demo's folder for this process, after a look at what lies there.

    Raises:
        UsageError: If something there that would be replaced is not provably of a demo, or another
            process is at work there.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file; name a folder with --out.")
    with file_lock(out / LOCK, guarded=out):
        require_free(out / TRAINING, overwrite=True)
        for checkpoint in (out / TRAINING / BEST, out / TRAINING / LAST):
            made = not checkpoint.is_dir() or not any(checkpoint.iterdir())
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                text = (checkpoint / "config.json").read_text(encoding="utf-8")
                made = made or json.loads(text)["run"]["demo"] is True
            if not made:
                raise UsageError(
                    f"{checkpoint}: was not made by the demo, so it is never replaced by it; name "
                    "another folder with --out."
                )
        require_replaceable(out / SAMPLES, DEMO_SAMPLES, overwrite=True)
        require_replaceable_report(out / REPORT)
        yield


def at_most(data: GraphDataset, max_nodes: int) -> GraphDataset:
    """Return the graphs of at most so many nodes, each in its part, with the same schema."""
    rows = {
        split: [i for i, dag in enumerate(dags) if dag.num_nodes <= max_nodes]
        for split, dags in data.graphs.items()
    }
    larger = [
        f"{name}: {dag.num_nodes} nodes, more than {max_nodes}"
        for split, dags in data.graphs.items()
        for name, dag in zip(data.names[split], dags, strict=True)
        if dag.num_nodes > max_nodes
    ]
    graphs, names, contents = (
        {split: tuple(parts[split][i] for i in rows[split]) for split in rows}
        for parts in (data.graphs, data.names, data.contents)
    )
    left_out = (*data.left_out, *larger)
    return data.replaced(graphs=graphs, names=names, contents=contents, left_out=left_out)


def train_stage(settings: DemoSettings, data: GraphDataset) -> tuple[LoadedCheckpoint, TrainResult]:
    """Tune the shipped checkpoint; return its best weights, and how far training came."""
    warm = warm_start(pretrained_checkpoint(PROGRAMS), data)
    run = assemble(
        data,
        settings.out / TRAINING,
        warm.spec,
        start=warm.start,
        run_config={"demo": True, "seed": settings.seed},
        overwrite=True,
    )
    plan = TrainSettings(
        seed=settings.seed,
        max_steps=settings.steps,
        batch_nodes=3000,
        optimizer=OptimizerConfig(learning_rate=3e-4, weight_decay=0.05),
        lr_schedule=LearningRateSchedule("cosine", 5),
        ema_decay=0.9,
        evaluate_every=20,
        patience=0,
    )
    result = train(run, plan)
    return load_checkpoint(result.best), result


def sample_stage(
    settings: DemoSettings, data: GraphDataset, checkpoint: LoadedCheckpoint
) -> tuple[GeneratedGraph, ...]:
    """Sample programs as ``layerdag sample`` does; those that do not run are left out."""
    most = 2 * settings.max_nodes
    plan = GenerationSettings(
        settings.samples, settings.seed, max_nodes=most, processes=settings.processes
    )
    drawn = track(generate(checkpoint.model, data.schema, plan), "sampling", settings.samples)
    programs = [sample for sample in drawn if isinstance(sample, GeneratedProgram)]
    return tuple(each for each in programs if not (each.truncated or each.is_copy))


@dataclass(frozen=True, eq=False)
class JobSets:
    """Training steps of real programs and of samples.

    Attributes:
        jobs: Of training and held-out programs under the plans of their runs, and of samples under
            plans drawn from those of training runs.
        data: The graphs of real jobs, with their simulated step time as label.
        samples: The graphs of sampled jobs, in the codes of ``data``.
        left_out: Programs without a job: no plan fits, or more stages than any training job has.
    """

    jobs: dict[str, list[DerivedJob]]
    data: GraphDataset
    samples: tuple[GeneratedGraph, ...]
    left_out: int

    def workloads(self, part: str) -> list[Workload]:
        """Return the traces of the jobs of "train", "test" or "made"."""
        return [job.workload for job in self.jobs[part]]


def derive_stage(
    settings: DemoSettings, data: GraphDataset, samples: Sequence[GeneratedGraph]
) -> JobSets:
    """Derive the training step of each sample and of as many real programs.

    Operators take as long as in the collected runs of training programs, by a surrogate of
    operators.
    """
    corpus, learned = embedded_corpus(), set(data.names["train"])
    records = [record for record in read_index(corpus) if record.run in learned]
    traces = [trace for run in read_runs(corpus, records) for trace in run.traces]
    compute = PredictedCompute(OperatorTrees.fit(traces, settings.seed).microseconds)
    plan_of = run_plans(corpus)
    part_of: dict[str, str] = {}
    for split in _REAL:  # spread evenly over those that have a plan
        names = [name for name in data.names[split] if name in plan_of]
        count = min(settings.samples, len(names))
        part_of.update((names[i * len(names) // count], split) for i in range(count))
    work: list[tuple[str, Callable[[], DerivedJob]]] = []
    for row in program_rows(corpus / PROGRAMS):
        name = str(row["name"])
        if name in part_of:
            program, plan = Program.from_json(row), plan_of[name]
            work.append((part_of[name], partial(derive_job, program, plan, compute)))
    for sample in samples:
        program, family = sample.program.named(sample.name), str(sample.dag.conditions[FAMILY])
        drawn = (data.schema.plans, sample.seed, compute)
        work.append(("made", partial(derive_drawn_job, program, family, *drawn)))
    jobs: dict[str, list[DerivedJob]] = {"train": [], "test": [], "made": []}
    for part, derive in track(work, "deriving training steps", len(work)):
        with contextlib.suppress(UsageError):  # the plan does not fit the program
            jobs[part].append(derive())
    real = {split: [_labeled(job) for job in jobs[split]] for split in _REAL}
    jobs_data = GraphDataset.build("derived jobs", "trace", {**real, "val": []})
    coded = []
    for job in jobs["made"]:
        with contextlib.suppress(VocabularyError):  # more stages than any training job
            coded.append((job, jobs_data.schema.encode(_labeled(job))))
    made = tuple(
        GeneratedJob(job.program.name, i, dag, False, jobs_data.schema)
        for i, (job, dag) in enumerate(coded)
    )
    jobs["made"] = [job for job, _ in coded]
    return JobSets(jobs, jobs_data, made, len(work) - sum(map(len, jobs.values())))


def _labeled(job: DerivedJob) -> AttributedGraph:
    """Return the graph of a job with its step time on the first of ``systems`` as label."""
    topology, bandwidth, latency = next(iter(systems().values()))
    network = NetworkConfig.single(topology, job.workload.num_ranks, bandwidth, latency)
    cluster = Cluster(network, SystemConfig.uniform("ring"))
    seconds = simulate(job.workload, cluster, compute=MeasuredCompute()).makespan_s
    return replace(job.graph, conditions={**job.graph.conditions, LABEL: seconds})


def report(settings: DemoSettings) -> tuple[ReportContent, Path]:
    """Run all stages, write the report, and return what it shows and its page."""
    with demo_lock(settings.out):
        content = _content(settings)
        return content, write_report(content, settings.out / REPORT)


def _content(settings: DemoSettings) -> ReportContent:
    seconds: dict[str, float] = {}
    began = time.perf_counter()

    def done(stage: str) -> None:
        nonlocal began
        seconds[stage], began = time.perf_counter() - began, time.perf_counter()

    config = ProgramsConfig(folder=embedded_corpus() / PROGRAMS, avoid_copies=True)
    whole = load_programs(config)
    data = at_most(whole, settings.max_nodes)
    done("load")
    checkpoint, trained = train_stage(settings, data)
    done("train")
    samples = sample_stage(settings, data, checkpoint)
    done("sample")
    jobs = derive_stage(settings, data, samples)
    with atomic_folder(settings.out / SAMPLES, DEMO_SAMPLES, overwrite=True) as folder:
        for job in jobs.jobs["made"]:
            name = job.program.name
            write_workload(job.workload, folder / name / name)
            job.program.save(folder / name / f"{name}{SUFFIX}")
    done("derive")
    learned, held_out = (data.graphs[split] for split in _REAL)
    drawn = tuple(sample.dag for sample in samples)
    statistics = GraphStatistics.measure(learned, data.schema.sizes())
    structure = check_structure(drawn, statistics, [sample.name for sample in samples])
    real_structure = check_structure(held_out, statistics)
    new = novelty(learned, held_out, drawn, structure.valid_B)
    leaks = sample_leaks(learned, data.held_out, drawn)
    attack = likelihood_attack(checkpoint.model, data.schema, learned, data.held_out)
    real_train, real_test = (jobs.data.graphs[split] for split in _REAL)
    made = tuple(sample.dag for sample in jobs.samples)
    views = attribute_views(jobs.data.schema)
    beside = jobs_beside(*(jobs.workloads(part) for part in jobs.jobs))
    similarity = compare(real_train, real_test, made, views, jobs=beside)
    depth = compare_by_depth(real_train, real_test, made, views)
    distributions = structure_distributions(real_train, real_test, made, views)
    shares = attribute_shares(real_train, real_test, made, views, vocabularies(jobs.data))
    done("evaluate")
    simulated = [
        simulate_stage(jobs.workloads(part), f"simulating {kind} jobs")
        for part, kind in (("test", "real"), ("made", "synthetic"))
    ]
    simulations, times = simulation_parts(*simulated)
    done("simulate")
    transfer = transferred(jobs.data, jobs.samples, families=settings.families, seeds=(0,))
    done("surrogate")
    rows = summary_rows(structure, real_structure, new, similarity, transfer)
    neighbors = neighbors_of(jobs.data, made)
    kept = [
        float(np.mean([not has_errors(check_workload(job)) for job in jobs.workloads(part)]))
        for part in ("made", "test")
    ]
    return ReportContent(
        title="Synthetic training steps",
        lead=f"{len(samples)} programs sampled from a model that was trained on {len(learned)} "
        "forward programs of collected training runs, from the weights of the shipped checkpoint "
        "on, and the training steps that follow from them, next to those of "
        f"{len(jobs.jobs['test'])} programs it never saw. Operators have the times of the "
        "collected runs.",
        answers=(
            privacy_verdict(new, leaks),
            similarity_verdict(median_ratio(similarity), similarity),
            utility_verdict(transfer),
        ),
        summary=(
            _trained_row(settings, samples),
            *rows[:2],
            SummaryRow("jobs whose traces keep every rule", *map(percent, kept)),
            *rows[2:],
            *_simulation_rows(*simulated),
        ),
        structure=structure,
        real_structure=real_structure,
        novelty=new,
        leaks=leaks,
        weight_attacks=(attack,),
        similarity=similarity,
        depth=depth,
        distributions=distributions,
        shares=shares,
        transfer=transfer,
        target="step time in seconds, simulated",
        simulations=simulations,
        systems=times,
        neighbors=neighbors,
        timelines=timelines_of(jobs.data, real_test, made),
        simulated_on=next(iter(systems())),
        provenance=(
            ("start", "the shipped checkpoint, trained on the training programs of the same split"),
            ("training", f"{trained.step} of {settings.steps} steps"),
            ("layerdag", __version__),
            ("hardware", f"{os.cpu_count()} {platform.machine()} cores, torch {torch.__version__}"),
            ("data", f"{data.name}, programs of at most {settings.max_nodes} calls"),
            ("data fingerprint", data.fingerprint),
            ("left out", f"{len(data.left_out)} programs (too large)"),
            ("seed of training and sampling", str(settings.seed)),
            ("fits of each surrogate", fits((0,))),
            ("time", ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items())),
            ("programs without a job", f"{jobs.left_out}: no plan fits, or too many stages"),
        ),
        caveats=CAVEATS,
    )


def _trained_row(settings: DemoSettings, samples: Sequence[GeneratedGraph]) -> SummaryRow:
    count = 0
    for sample in track(samples, "running", len(samples)):
        module = sample.program.module()
        loss = module(*module.example_inputs())
        loss.backward()
        reached = all(parameter.grad is not None for parameter in module.parameters())
        count += bool(torch.isfinite(loss)) and reached
    return SummaryRow(
        "programs that run: training step with a finite loss",
        f"{count} of {settings.samples}",
        note="on this machine's processor, at the sizes drawn",
    )


def _simulation_rows(real: SimulatedWorkloads, made: SimulatedWorkloads) -> tuple[SummaryRow, ...]:
    def finished(part: SimulatedWorkloads) -> str:
        return percent(1 - len(part.failed) / (len(part.failed) + part.num_ranks.size))

    def median_ms(part: SimulatedWorkloads) -> str:
        makespan_ns = part.makespan_ns[0]
        return number(float(np.median(makespan_ns)) / 1e6) if makespan_ns.size else "-"

    note = made.failed[0][:90] if made.failed else "on all systems"
    first = f"on {next(iter(systems()))}"
    return (
        SummaryRow("jobs that simulate to their end", finished(made), finished(real), note),
        SummaryRow("median simulated makespan, ms", median_ms(made), median_ms(real), first),
    )
