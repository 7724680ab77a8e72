"""The stages of ``layerdag demo``, background work."""

import contextlib
import json
import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from layerdag.dag.dag import DAG
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.programs import load_programs, program_rows
from layerdag.datasets.run_plans import run_plans
from layerdag.errors import UsageError, VocabularyError
from layerdag.evaluation.metrics.base import attribute_views
from layerdag.evaluation.metrics.whole_programs import jobs_beside
from layerdag.evaluation.similarity import (
    DepthSimilarity,
    QualityReport,
    compare,
    compare_by_depth,
)
from layerdag.evaluation.validity import StructureReport, check_structure
from layerdag.graph.attributed_graph import LABEL, AttributedGraph, Split
from layerdag.graph.formats.program_json import SUFFIX
from layerdag.privacy.copies import Novelty, novelty
from layerdag.privacy.membership import Attack, likelihood_attack
from layerdag.privacy.sample_leaks import SampleLeaks, sample_leaks
from layerdag.programs.forward_program import Program
from layerdag.report.content import (
    CategoryFractions,
    Distribution,
    ReportContent,
    SummaryRow,
    SystemTimes,
    median_ratio,
    privacy_verdict,
    similarity_verdict,
    utility_verdict,
)
from layerdag.report.gather import (
    SimulatedWorkloads,
    attribute_shares,
    neighbors_of,
    picture_of,
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
from layerdag.report.sections import fits
from layerdag.runtime.files import LOCK, FolderKind, atomic_folder, file_lock, require_replaceable
from layerdag.runtime.processes import Worker
from layerdag.runtime.terminal import track
from layerdag.sampling.derived_jobs import DerivedJob, derive_drawn_job, derive_job
from layerdag.sampling.folder import why_not_sampled_jobs
from layerdag.sampling.generated import GeneratedGraph
from layerdag.sampling.generation import generate
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.plan_tables import PlannedStep
from layerdag.schema.schema import GraphSchema
from layerdag.schema.size_tables import FAMILY
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import MeasuredCompute, PredictedCompute
from layerdag.simulator.config import NetworkConfig, SystemConfig
from layerdag.simulator.learned import OperatorTrees
from layerdag.simulator.run import simulate
from layerdag.traces.chakra.corpus import read_index, read_runs
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
from layerdag.training.model_spec import spec_for
from layerdag.training.run import (
    LearningRateSchedule,
    OptimizerConfig,
    TrainResult,
    TrainSettings,
    assemble,
    require_free,
)
from layerdag.training.warm_start import WarmStart, warm_start
from layerdag.validation.checking import check_workload
from layerdag.validation.rules import has_errors
from layerdag.version import __version__
from layerdag.viz.drawing import Picture
from layerdag.viz.html import number, percent

Found = TypeVar("Found")


def submit_in_background(work: Callable[[], Found]) -> Callable[[], Found]:
    """Begin work in a process of its own, and return what waits for its result.

    The process has as many threads as this one, so that the result is the same. If it ends without
    a result, whether killed or by an error, the work is done here, where the error is raised.

    Args:
        work: A function of a module, or a ``functools.partial`` of one, that pickles.
    """
    worker = Worker.start(_answer)
    worker.send(pickle.dumps((work, torch.get_num_threads())))

    def found() -> Found:
        try:
            result: Found = worker.receive()
        except EOFError:
            return work()
        return result

    return found


def _answer(there: Connection) -> None:
    work, threads = pickle.loads(there.recv_bytes())
    torch.set_num_threads(threads)
    there.send_bytes(pickle.dumps(work()))


TRAINING, SAMPLES, REPORT = "training", "samples", "report.html"
DEMO_SAMPLES = FolderKind("samples of the demo", why_not_sampled_jobs)
PROGRAMS = "programs"
"""Name of the shipped checkpoint, and of the folder of programs in a corpus."""
_REAL: tuple[Split, ...] = ("train", "test")
MARK = {"demo": True}
"""What the configuration of a demo's checkpoints says."""


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
        for name in (BEST, LAST):
            _require_of_a_demo(out / TRAINING / name)
        require_replaceable(out / SAMPLES, DEMO_SAMPLES, overwrite=True)
        require_replaceable_report(out / REPORT)
        yield


def _require_of_a_demo(checkpoint: Path) -> None:
    """Raise UsageError if a checkpoint is there that another training made."""
    if not checkpoint.is_dir() or not any(checkpoint.iterdir()):
        return
    try:
        run = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))["run"]
        made = MARK.items() <= run.items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        made = False
    if not made:
        raise UsageError(
            f"{checkpoint}: was not made by the demo, so it is never replaced by it; name another "
            "folder with --out."
        )


def _usual_processes() -> int:
    """Return 2, or 1 where there is a single processor."""
    return min(os.cpu_count() or 1, 2)


@dataclass(frozen=True)
class DemoSettings:
    """How large the demo is.

    Attributes:
        data: Corpus folder.
        out: Folder of everything it writes.
        seed: Of training and sampling.
        max_nodes: Programs of more calls are left out.
        tuning_steps: Optimizer steps after a start from the shipped checkpoint. No limit of time is
            set beside them, so that the same model comes out on a slow machine as on a fast one.
        train_steps: Optimizer steps from random weights, where the shipped checkpoint may not be
            used.
        width: Of a model from random weights.
        samples: Number of programs sampled, and most real ones whose steps are compared with them.
        surrogate_seeds: Seeds of the surrogate fits.
        families: Families of surrogates.
        processes: 2 to sample in two processes, and to fit surrogates beside the evaluation; what
            comes out is the same as with 1.
    """

    data: Path
    out: Path
    seed: int = 0
    max_nodes: int = 600
    tuning_steps: int = 40
    train_steps: int = 600
    width: int = 128
    samples: int = 192
    surrogate_seeds: tuple[int, ...] = (0,)
    families: tuple[str, ...] = ("boosting", "message_passing")
    processes: int = field(default_factory=_usual_processes)

    @classmethod
    def short(cls, data: Path, out: Path, seed: int) -> "DemoSettings":
        """Return the settings of a small version, for continuous integration."""
        return cls(
            data,
            out,
            seed,
            max_nodes=120,
            tuning_steps=10,
            train_steps=60,
            width=64,
            samples=48,
            surrogate_seeds=(0,),
            families=("boosting",),
            processes=1,
        )


def train_stage(
    settings: DemoSettings, data: GraphDataset, warm: WarmStart | None
) -> tuple[LoadedCheckpoint, TrainResult]:
    """Train a model; return its best checkpoint, and how far training came.

    Args:
        settings: Of the demo.
        data: The jobs.
        warm: What to start from; None for a small model from random weights.
    """
    arguments = {"width": settings.width, "predict_out_degree": False}
    folder = settings.out / TRAINING
    run = assemble(
        data,
        folder,
        spec_for(data, "fast", arguments) if warm is None else warm.spec,
        start=None if warm is None else warm.start,
        run_config={**MARK, "seed": settings.seed},
        overwrite=True,
    )
    training = TrainSettings(
        seed=settings.seed,
        max_steps=steps_of(settings, warm),
        batch_nodes=3000,
        optimizer=OptimizerConfig(learning_rate=2e-3 if warm is None else 3e-4, weight_decay=0.05),
        lr_schedule=LearningRateSchedule("cosine", 50 if warm is None else 5),
        ema_decay=0.98 if warm is None else 0.9,
        evaluate_every=100 if warm is None else 20,
        patience=0,
        precision="auto",
    )
    result = train(run, training)
    return load_checkpoint(run.best), result


def steps_of(settings: DemoSettings, warm: WarmStart | None) -> int:
    """Return the number of optimizer steps that the demo means to make."""
    return settings.train_steps if warm is None else settings.tuning_steps


def sample_stage(
    settings: DemoSettings, data: GraphDataset, checkpoint: LoadedCheckpoint
) -> tuple[GeneratedGraph, ...]:
    """Sample programs as ``layerdag sample`` does, open conditions drawn for each.

    Those for which no program that runs was drawn are left out; the table counts them.

    Raises:
        UsageError: If there is no other.
    """
    plan = GenerationSettings(
        settings.samples, settings.seed, max_nodes=2 * settings.max_nodes,
        processes=settings.processes,
    )  # fmt: skip
    drawn = track(generate(checkpoint.model, data.schema, plan), "sampling", settings.samples)
    found = tuple(sample for sample in drawn if not (sample.truncated or sample.is_copy))
    if not found:
        raise UsageError(
            f"none of {settings.samples} samples is a program that runs; the model learned too "
            "little: give a corpus with more programs."
        )
    return found


def timed(seconds: dict[str, float], name: str, start: float) -> float:
    """Note how long a stage took and return the time now."""
    now = time.perf_counter()
    seconds[name] = now - start
    return now


def hardware() -> str:
    """Return processor count and torch build in a few words."""
    import os
    import platform

    return f"{os.cpu_count()} {platform.machine()} cores, torch {torch.__version__}, CPU"


CAVEATS = (
    "The scale of every distance is the same distance between real training and real test jobs; "
    "with this many graphs a ratio is uncertain, see the intervals.",
    "Copy tests and membership attacks that find nothing are no proof of safety.",
    "Step times are simulated, from times of operators as the collected runs have them; surrogates "
    "do not see these.",
)


def training(
    settings: DemoSettings, trained: TrainResult, best_step: int, warm: WarmStart | None
) -> tuple[tuple[str, str], ...]:
    """Say where the weights come from, how many steps were done, and which were sampled from."""
    return (
        ("start", _start(warm)),
        ("training", f"{trained.step} of {steps_of(settings, warm)} steps"),
        ("weights", f"those of step {best_step}, the best on the validation programs"),
    )


def _start(warm: WarmStart | None) -> str:
    if warm is None:
        return (
            "random weights, for the shipped checkpoint was not trained on the same split of these "
            "data"
        )
    return (
        "the shipped checkpoint, trained on the training programs of the same split "
        f"({warm.start.origin.step:,} steps in its last run); its validation and test "
        "programs are the ones held out here"
    )


def caveats(
    settings: DemoSettings, trained: TrainResult, warm: WarmStart | None
) -> tuple[str, ...]:
    """Return what the figures do not show; first of all that training was cut short, if it was."""
    known: tuple[str, ...] = CAVEATS
    if warm is not None:
        known = (
            f"The figures are not those of {trained.step} steps alone: the weights that they "
            "started from had been trained before "
            f"({warm.start.origin.step:,} steps in the last run).",
            *CAVEATS,
        )
    steps = steps_of(settings, warm)
    if trained.step >= steps:
        return known
    stopped = (
        f"Training stopped after {trained.step} of {steps} steps ({trained.reason}); the figures "
        "are those of a model that learned less."
    )
    return (stopped, *known)


def provenance(
    settings: DemoSettings, data: GraphDataset, seconds: dict[str, float]
) -> tuple[tuple[str, str], ...]:
    """Say what was run, on what, how long it took and with which seeds."""
    took = ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items())
    counts = ", ".join(f"{len(dags)} {split}" for split, dags in data.graphs.items())
    is_short = settings == DemoSettings.short(settings.data, settings.out, settings.seed)
    return (
        ("command", f"layerdag demo --seed {settings.seed}{' --short' if is_short else ''}"),
        ("layerdag", __version__),
        ("hardware", hardware()),
        ("data", f"{settings.data.name}, programs of at most {settings.max_nodes} calls: {counts}"),
        ("data fingerprint", data.fingerprint),
        ("left out", f"{len(data.left_out)} programs (too large)"),
        ("seed of training and sampling", str(settings.seed)),
        ("fits of each surrogate", fits(settings.surrogate_seeds)),
        ("time", took),
    )


def load_stage(settings: DemoSettings) -> tuple[GraphDataset, WarmStart | None]:
    """Load the programs of the corpus, and the weights to start from.

    The shipped checkpoint is used only if its training, validation and test programs are those of
    the corpus, by the fingerprint of the split, so that none that is held out was ever trained on.

    Returns:
        The programs of at most ``settings.max_nodes`` calls, and the start; None for random
        weights.
    """
    folder = pretrained_checkpoint(PROGRAMS)
    whole = load_programs(settings.data / PROGRAMS, avoid_copies=True)
    data = at_most(whole, settings.max_nodes)
    split = load_checkpoint(folder).meta.split
    if split is None or split.differing(whole.split):
        return data, None
    return data, warm_start(folder, data)


def at_most(data: GraphDataset, max_nodes: int) -> GraphDataset:
    """Return the graphs of at most so many nodes, each in its part, with the same schema."""
    kept = {
        split: [i for i, dag in enumerate(dags) if dag.num_nodes <= max_nodes]
        for split, dags in data.graphs.items()
    }
    larger = [
        f"{data.names[split][i]}: {dag.num_nodes} nodes, more than {max_nodes}"
        for split, dags in data.graphs.items()
        for i, dag in enumerate(dags)
        if dag.num_nodes > max_nodes
    ]
    return data.replaced(
        graphs={split: tuple(data.graphs[split][i] for i in rows) for split, rows in kept.items()},
        names={split: tuple(data.names[split][i] for i in rows) for split, rows in kept.items()},
        contents={
            split: tuple(data.contents[split][i] for i in rows) for split, rows in kept.items()
        },
        left_out=(*data.left_out, *larger),
    )


def report(settings: DemoSettings) -> tuple[ReportContent, Path]:
    """Run all stages, write the report, and return what it shows and its page."""
    with demo_lock(settings.out):
        content = _content(settings)
        return content, write_report(content, settings.out / REPORT)


def _content(settings: DemoSettings) -> ReportContent:
    seconds: dict[str, float] = {}
    now = time.perf_counter()
    data, warm = load_stage(settings)
    now = timed(seconds, "load", now)
    checkpoint, trained = train_stage(settings, data, warm)
    now = timed(seconds, "train", now)
    samples = sample_stage(settings, data, checkpoint)
    now = timed(seconds, "sample", now)
    jobs = derive_stage(settings, data, samples)
    _write_samples(settings, samples, jobs)
    now = timed(seconds, "derive", now)
    fits = partial(
        transferred,
        jobs.data, jobs.samples, families=settings.families, seeds=settings.surrogate_seeds,
    )  # fmt: skip
    surrogates = submit_in_background(fits) if settings.processes > 1 else fits
    programs = _judged_programs(data, samples, checkpoint)
    similar = _compared_jobs(jobs)
    now = timed(seconds, "evaluate", now)
    simulation = _simulated(jobs)
    now = timed(seconds, "simulate", now)
    transfer = surrogates()
    timed(seconds, "surrogate", now)
    rows = summary_rows(
        programs.structure, programs.real_structure, programs.novelty, similar.similarity, transfer
    )
    dags = tuple(sample.dag for sample in jobs.samples)
    alike = neighbors_of(jobs.data, dags)
    return ReportContent(
        title="Synthetic training steps",
        lead=f"{len(samples)} programs sampled from a model that was trained on "
        f"{len(data.graphs['train'])} forward programs of collected training runs"
        f"{'' if warm is None else ', from the weights of the shipped checkpoint on'}, and the "
        f"training steps that follow from them, next to those of {len(jobs.test)} programs it "
        "never saw. Operators have the times of the collected runs.",
        answers=(
            privacy_verdict(programs.novelty, programs.leaks),
            similarity_verdict(median_ratio(similar.similarity), similar.similarity),
            utility_verdict(transfer),
        ),
        summary=(
            _trained_row(settings, samples),
            *rows[:2],
            _trace_row(jobs),
            *rows[2:],
            *simulation.rows,
        ),
        structure=programs.structure,
        real_structure=programs.real_structure,
        novelty=programs.novelty,
        leaks=programs.leaks,
        weight_attacks=programs.weight_attacks,
        similarity=similar.similarity,
        depth=similar.depth,
        distributions=similar.distributions,
        shares=similar.shares,
        transfer=transfer,
        target="step time in seconds, simulated",
        simulations=simulation.distributions,
        systems=simulation.times,
        neighbors=alike,
        timelines=timelines_of(jobs.data, jobs.data.graphs["test"], dags),
        simulated_on=next(iter(systems())),
        pictures=() if alike else _pictures(jobs.data, dags),
        provenance=(
            *training(settings, trained, checkpoint.meta.step, warm),
            *provenance(settings, data, seconds),
            ("programs without a job", f"{jobs.left_out}: no plan fits, or too many stages"),
        ),
        caveats=caveats(settings, trained, warm),
    )


@dataclass(frozen=True, eq=False)
class JobSets:
    """Training steps of real programs and of samples.

    Attributes:
        train: Of training programs, under the plans of their runs.
        test: Of held-out programs, under the plans of their runs.
        made: Of samples, under plans drawn from those of training runs.
        data: The graphs of ``train`` and ``test``, with their simulated step time as label.
        samples: The graphs of ``made``, in the codes of ``data``.
        left_out: Programs without a job: no plan fits, or more stages than any training job has.
    """

    train: tuple[DerivedJob, ...]
    test: tuple[DerivedJob, ...]
    made: tuple[DerivedJob, ...]
    data: GraphDataset
    samples: tuple[GeneratedGraph, ...]
    left_out: int


def derive_stage(
    settings: DemoSettings, data: GraphDataset, samples: Sequence[GeneratedGraph]
) -> JobSets:
    """Derive the training step of each sample and of as many real programs.

    Operators take as long as in the collected runs of training programs, by a surrogate of
    operators. Real programs run under the plans of their own runs.
    """
    compute = PredictedCompute(_operator_times(settings, data).microseconds)
    real = _real_programs(settings, data)
    work: list[Callable[[], DerivedJob]] = [
        partial(derive_job, program, plan, compute)
        for program, plan in real["train"] + real["test"]
    ]
    for sample in samples:
        named = sample.program.named(sample.name)
        family, plans = str(sample.dag.conditions[FAMILY]), data.schema.plans
        work.append(partial(derive_drawn_job, named, family, plans, sample.seed, compute))
    jobs = _derived(work, settings.processes)
    ends = np.cumsum([len(real["train"]), len(real["test"])]).tolist()
    return _job_sets(jobs[: ends[0]], jobs[ends[0] : ends[1]], jobs[ends[1] :])


def _operator_times(settings: DemoSettings, data: GraphDataset) -> OperatorTrees:
    names = set(data.names["train"])
    records = [record for record in read_index(settings.data) if record.run in names]
    runs = read_runs(settings.data, records)
    return OperatorTrees.fit([trace for run in runs for trace in run.traces], settings.seed)


def _real_programs(
    settings: DemoSettings, data: GraphDataset
) -> dict[Split, list[tuple[Program, PlannedStep]]]:
    """Return training and held-out programs with the plans of their runs, a sample's number each.

    They are spread evenly over those that have a plan.
    """
    plan_of = run_plans(settings.data)
    chosen: dict[str, Split] = {}
    for split in _REAL:
        names = [name for name in data.names[split] if name in plan_of]
        count = min(settings.samples, len(names))
        chosen.update((names[i * len(names) // count], split) for i in range(count))
    found: dict[Split, list[tuple[Program, PlannedStep]]] = {split: [] for split in _REAL}
    for row in program_rows(settings.data / PROGRAMS):
        name = str(row["name"])
        if name in chosen:
            found[chosen[name]].append((Program.from_json(row), plan_of[name]))
    return found


def _derived(work: Sequence[Callable[[], DerivedJob]], processes: int) -> list[DerivedJob | None]:
    """Return the jobs; None where a plan does not fit its program."""
    parts = [work[part::processes] for part in range(processes)]
    waiting = [submit_in_background(partial(_done, part)) for part in parts[1:]]
    shown = track(parts[0], "deriving training steps", len(parts[0]))
    done = [_done(shown), *(wait() for wait in waiting)]
    return [done[i % processes][i // processes] for i in range(len(work))]


def _done(work: Iterable[Callable[[], DerivedJob]]) -> list[DerivedJob | None]:
    """Return the results of some work, None where a plan does not fit."""
    return [_unless_refused(derive) for derive in work]


def _unless_refused(derive: Callable[[], DerivedJob]) -> DerivedJob | None:
    with contextlib.suppress(UsageError):
        return derive()
    return None


def _job_sets(*jobs: Sequence[DerivedJob | None]) -> JobSets:
    """Return training, test and sampled jobs that exist, with their graphs.

    The label is the step time on the first of ``systems``.
    """
    train, test, made = ([job for job in part if job is not None] for part in jobs)
    graphs = {
        split: [_labeled(job) for job in part]
        for split, part in zip(_REAL, (train, test), strict=True)
    }
    data = GraphDataset.build("derived jobs", "trace", {**graphs, "val": []})
    coded = [(job, dag) for job in made if (dag := _encoded(data.schema, job)) is not None]
    samples = tuple(
        GeneratedGraph(job.program.name, i, dag, False, data.schema)
        for i, (job, dag) in enumerate(coded)
    )
    left_out = sum(map(len, jobs)) - len(train) - len(test) - len(coded)
    made_jobs = tuple(job for job, _ in coded)
    return JobSets(tuple(train), tuple(test), made_jobs, data, samples, left_out)


def _encoded(schema: GraphSchema, job: DerivedJob) -> DAG | None:
    """Return the graph of a job in codes; None if it has more stages than any training job."""
    with contextlib.suppress(VocabularyError):
        return schema.encode(_labeled(job))
    return None


def _labeled(job: DerivedJob) -> AttributedGraph:
    """Return the graph of a job with its simulated step time in seconds as label."""
    topology, bandwidth, latency = next(iter(systems().values()))
    network = NetworkConfig.single(topology, job.workload.num_ranks, bandwidth, latency)
    cluster = Cluster(network, SystemConfig.uniform("ring"))
    seconds = simulate(job.workload, cluster, compute=MeasuredCompute()).makespan_s
    return replace(job.graph, conditions={**job.graph.conditions, LABEL: seconds})


def _write_samples(
    settings: DemoSettings, samples: Sequence[GeneratedGraph], jobs: JobSets
) -> None:
    with atomic_folder(settings.out / SAMPLES, DEMO_SAMPLES, overwrite=True) as folder:
        for job in jobs.made:
            name = job.program.name
            write_workload(job.workload, folder / name / name)
            job.program.save(folder / name / f"{name}{SUFFIX}")


@dataclass(frozen=True, eq=False)
class _JudgedPrograms:
    structure: StructureReport
    real_structure: StructureReport
    novelty: Novelty
    leaks: SampleLeaks | None
    weight_attacks: tuple[Attack, ...]


@dataclass(frozen=True, eq=False)
class _ComparedJobs:
    similarity: QualityReport
    depth: tuple[DepthSimilarity, ...]
    distributions: tuple[Distribution, ...]
    shares: tuple[CategoryFractions, ...]


@dataclass(frozen=True, eq=False)
class _Simulation:
    rows: tuple[SummaryRow, ...]
    distributions: tuple[Distribution, ...]
    times: SystemTimes | None


def _judged_programs(
    data: GraphDataset, samples: Sequence[GeneratedGraph], checkpoint: LoadedCheckpoint
) -> _JudgedPrograms:
    train, test = data.graphs["train"], data.graphs["test"]
    dags = tuple(sample.dag for sample in samples)
    statistics = GraphStatistics.measure(train, data.schema.sizes())
    structure = check_structure(dags, statistics, [sample.name for sample in samples])
    return _JudgedPrograms(
        structure=structure,
        real_structure=check_structure(test, statistics),
        novelty=novelty(train, test, dags, structure.valid_B),
        leaks=sample_leaks(train, data.held_out, dags),
        weight_attacks=(likelihood_attack(checkpoint.model, data.schema, train, data.held_out),),
    )


def _compared_jobs(jobs: JobSets) -> _ComparedJobs:
    train, test = jobs.data.graphs["train"], jobs.data.graphs["test"]
    dags = tuple(sample.dag for sample in jobs.samples)
    views = attribute_views(jobs.data.schema)
    sets = [[job.workload for job in part] for part in (jobs.train, jobs.test, jobs.made)]
    return _ComparedJobs(
        similarity=compare(train, test, dags, views, jobs=jobs_beside(*sets)),
        depth=compare_by_depth(train, test, dags, views),
        distributions=structure_distributions(train, test, dags, views),
        shares=attribute_shares(train, test, dags, views, vocabularies(jobs.data)),
    )


def _pictures(data: GraphDataset, dags: tuple[DAG, ...]) -> tuple[Picture, ...]:
    sizes_B = np.array([dag.num_nodes for dag in data.graphs["test"]])
    real = data.graphs["test"][int(np.argsort(sizes_B)[sizes_B.size // 3])]
    nearest = min(dags, key=lambda dag: abs(dag.num_nodes - real.num_nodes))
    return (
        picture_of(data, real, "real test job"),
        picture_of(data, nearest, "sampled job"),
    )


def _trained_row(settings: DemoSettings, samples: Sequence[GeneratedGraph]) -> SummaryRow:
    trains = [_makes_a_step(sample.program) for sample in track(samples, "running", len(samples))]
    return SummaryRow(
        "programs that run: training step with a finite loss",
        f"{sum(trains)} of {settings.samples}",
        note="on this machine's processor, at the sizes drawn",
    )


def _makes_a_step(program: Program) -> bool:
    module = program.module()
    loss = module(*module.example_inputs())
    loss.backward()
    reached = all(parameter.grad is not None for parameter in module.parameters())
    return bool(torch.isfinite(loss)) and reached


def _trace_row(jobs: JobSets) -> SummaryRow:
    made, real = ([job.workload for job in part] for part in (jobs.made, jobs.test))
    return SummaryRow(
        "jobs whose traces keep every rule", percent(_rule_share(made)), percent(_rule_share(real))
    )


def _rule_share(workloads: list[Workload]) -> float:
    return float(np.mean([not has_errors(check_workload(workload)) for workload in workloads]))


def _simulated(jobs: JobSets) -> _Simulation:
    real = [job.workload for job in jobs.test]
    synthetic = [job.workload for job in jobs.made]
    simulated = simulate_stage(real, "simulating real jobs")
    made = simulate_stage(synthetic, "simulating synthetic jobs")
    parts, times = simulation_parts(simulated, made)
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
            f"on {next(iter(systems()))}",
        ),
    ]
    return _Simulation(tuple(rows), parts, times)


def _median_ms(part: SimulatedWorkloads) -> str:
    """Return the median makespan on the first system, or a dash where nothing ran."""
    makespan_ns = part.makespan_ns[0]
    return number(float(np.median(makespan_ns)) / 1e6) if makespan_ns.size else "-"
