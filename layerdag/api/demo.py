"""The stages of ``layerdag demo``, background work."""

import contextlib
import json
import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from layerdag.codec.unfolding import repair_in_words
from layerdag.dag.dag import DAG
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.corpus import load_corpus
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import UsageError
from layerdag.evaluation.metrics.base import attribute_views
from layerdag.evaluation.metrics.whole_programs import jobs_beside
from layerdag.evaluation.similarity import (
    DepthSimilarity,
    QualityReport,
    compare,
    compare_by_depth,
)
from layerdag.evaluation.validity import StructureReport, check_structure
from layerdag.graph.attributed_graph import Condition
from layerdag.models.base import DAGModel
from layerdag.privacy.copies import Novelty, novelty
from layerdag.privacy.leak_curve import LeakRow, leak_curve
from layerdag.privacy.membership import Attack, likelihood_attack
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
    DecodedJobs,
    SimulatedWorkloads,
    attribute_shares,
    decoded_jobs,
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
from layerdag.sampling.folder import why_not_sampled_jobs
from layerdag.sampling.generated import GeneratedGraph
from layerdag.sampling.generation import sample_like
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.traces.chakra.corpus import read_index, read_runs
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.trace import Workload
from layerdag.training.checkpoint import (
    BEST,
    LAST,
    LOG,
    LoadedCheckpoint,
    load_checkpoint,
    pretrained_checkpoint,
)
from layerdag.training.loggers import JsonlLogger
from layerdag.training.loop import train
from layerdag.training.run import (
    LearningRateSchedule,
    OptimizerConfig,
    TrainResult,
    TrainSettings,
    assemble,
    clear_run,
    require_free,
)
from layerdag.training.weight_transfer import PRETRAINED, WarmStart, spec_for, warm_start
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
    """Do in this process what another one sends, and send the result back."""
    work, threads = pickle.loads(there.recv_bytes())
    torch.set_num_threads(threads)
    there.send_bytes(pickle.dumps(work()))


TRAINING, SAMPLES, REPORT = "training", "samples", "report.html"
DEMO_SAMPLES = FolderKind("samples of the demo", why_not_sampled_jobs)
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
        max_nodes: Larger jobs of the corpus are left out.
        tuning_steps: Optimizer steps after a start from the shipped checkpoint. No limit of time is
            set beside them, so that the same model comes out on a slow machine as on a fast one.
        train_steps: Optimizer steps from random weights, where the shipped checkpoint may not be
            used.
        width: Of a model from random weights.
        samples: Number of graphs sampled, conditions taken from training graphs.
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
    clear_run(folder)
    logger = JsonlLogger(folder / LOG)
    try:
        result = train(run, training, loggers=[logger])
    finally:
        logger.close()
    return load_checkpoint(run.best), result


def steps_of(settings: DemoSettings, warm: WarmStart | None) -> int:
    """Return the number of optimizer steps that the demo means to make."""
    return settings.train_steps if warm is None else settings.tuning_steps


def sample_stage(
    settings: DemoSettings, data: GraphDataset, checkpoint: LoadedCheckpoint
) -> tuple[GeneratedGraph, ...]:
    """Sample one graph for each of several training graphs' conditions, as `layerdag sample`.

    They are spread evenly over the training graphs, whose order is that in which they were
    collected: the first ones are of few families.
    """
    train_dags, num = data.graphs["train"], settings.samples
    rows = [train_dags[i * len(train_dags) // num].conditions for i in range(num)]
    # All side by side: what a step of the sampler costs grows little with the number of graphs.
    plan = GenerationSettings(seed=settings.seed, max_nodes=2 * settings.max_nodes, batch_size=num)
    parts = [range(part, num, settings.processes) for part in range(settings.processes)]
    draws = [partial(_sampled, checkpoint.model, data.schema, rows, plan, part) for part in parts]
    waiting = [submit_in_background(draw) for draw in draws[1:]]
    drawn = [draws[0](), *(wait() for wait in waiting)]
    return tuple(drawn[i % settings.processes][i // settings.processes] for i in range(num))


def _sampled(
    model: DAGModel,
    schema: GraphSchema,
    rows: Sequence[Mapping[str, Condition]],
    plan: GenerationSettings,
    numbers: range,
) -> list[GeneratedGraph]:
    """Sample the graphs with these numbers."""
    sampled = sample_like(model, schema, [rows[i] for i in numbers], plan, numbers)
    return list(track(sampled, "sampling", len(numbers)))


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
    "The surrogate does not see measured durations; the job's step time is its target.",
)


def training(
    settings: DemoSettings, trained: TrainResult, best_step: int, warm: WarmStart | None
) -> tuple[tuple[str, str], ...]:
    """Say where the weights come from, how many steps were done, and which were sampled from."""
    return (
        ("start", _start(warm)),
        ("training", f"{trained.step} of {steps_of(settings, warm)} steps"),
        ("weights", f"those of step {best_step}, the best on the validation jobs"),
    )


def _start(warm: WarmStart | None) -> str:
    """Say what training started from."""
    if warm is None:
        return (
            "random weights, for the shipped checkpoint was not trained on the same split of these "
            "data"
        )
    return (
        "the shipped checkpoint, trained on the training jobs of the same split "
        f"({warm.start.origin.step:,} steps in its last run); its validation and test jobs are the "
        "ones held out here"
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
        ("data", f"{settings.data.name}, at most {settings.max_nodes} nodes per job: {counts}"),
        ("data fingerprint", data.fingerprint),
        ("left out", f"{len(data.left_out)} runs (too large, or with an unseen word)"),
        ("seed of training and sampling", str(settings.seed)),
        ("fits of each surrogate", fits(settings.surrogate_seeds)),
        ("time", took),
    )


def load_stage(settings: DemoSettings) -> tuple[GraphDataset, WarmStart | None]:
    """Load the corpus, and the weights to start from.

    The shipped checkpoint is used only if its training, validation and test graphs are those of
    the corpus, by the fingerprint of the split. The demo then takes the smaller jobs of each part,
    so that no job that it holds out was ever trained on, and trains on the further jobs that the
    checkpoint was trained on, too, if they are there.

    Returns:
        The jobs of at most ``settings.max_nodes`` nodes, and the start; None for random weights.
    """
    shipped = load_checkpoint(pretrained_checkpoint())
    largest = int(shipped.data_settings.get("max_nodes", settings.max_nodes))
    further = shipped.data_settings.get("further")
    found = further is not None and (settings.data / str(further)).is_dir()
    whole = load_corpus(
        settings.data,
        max_nodes=max(largest, settings.max_nodes),
        further=str(further) if found else None,
    )
    data = at_most(whole, settings.max_nodes)
    if shipped.meta.split is None or shipped.meta.split.differing(whole.split):
        return data, None
    return data, warm_start(PRETRAINED, data, seed=settings.seed)


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


WRITTEN_SAMPLES = 8


def report(settings: DemoSettings) -> tuple[ReportContent, Path]:
    """Run all stages, write the report, and return what it shows and its page."""
    with demo_lock(settings.out):
        content = _content(settings)
        return content, write_report(content, settings.out / REPORT)


def _content(settings: DemoSettings) -> ReportContent:
    """Run the stages in order and gather what the report shows."""
    seconds: dict[str, float] = {}
    now = time.perf_counter()
    data, warm = load_stage(settings)
    now = timed(seconds, "load", now)
    checkpoint, trained = train_stage(settings, data, warm)
    # Further jobs are no part of the split: samples are compared with the corpus alone.
    data = data.without_further()
    now = timed(seconds, "train", now)
    samples = sample_stage(settings, data, checkpoint)
    now = timed(seconds, "sample", now)
    fits = partial(
        transferred,
        data, samples, families=settings.families, seeds=settings.surrogate_seeds,
    )  # fmt: skip
    surrogates = submit_in_background(fits) if settings.processes > 1 else fits
    evaluation = _evaluated(data, samples, checkpoint)
    real = _test_workloads(settings, data)
    made = decoded_jobs(sample.graph for sample in samples)
    trace_row = _trace_row(settings, data, real, made)
    now = timed(seconds, "evaluate", now)
    simulation = _simulated(real, made.workloads)
    now = timed(seconds, "simulate", now)
    transfer = surrogates()
    timed(seconds, "surrogate", now)
    rows = summary_rows(
        evaluation.structure,
        evaluation.real_structure,
        evaluation.novelty,
        evaluation.similarity,
        transfer,
    )
    dags = tuple(sample.dag for sample in samples)
    alike = neighbors_of(data, dags)
    return ReportContent(
        title="Synthetic execution traces",
        lead=f"{len(samples)} jobs sampled from a small model that was trained on "
        f"{len(data.graphs['train'])} collected training and inference steps"
        f"{'' if warm is None else ', from the weights of the shipped checkpoint on'}, next to "
        f"{len(data.graphs['test'])} jobs it never saw.",
        answers=(
            privacy_verdict(evaluation.novelty, evaluation.leaks),
            similarity_verdict(median_ratio(evaluation.similarity), evaluation.similarity),
            utility_verdict(transfer),
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
        transfer=transfer,
        target="step time in seconds",
        repairs=tuple((repair_in_words(name), count) for name, count in made.repairs.items()),
        simulations=simulation.distributions,
        systems=simulation.times,
        neighbors=alike,
        timelines=timelines_of(data, data.graphs["test"], dags),
        simulated_on=next(iter(systems())),
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
    similarity: QualityReport
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
    jobs = jobs_beside(data.jobs.get("train", ()), data.jobs.get("test", ()), samples)
    return _Evaluation(
        structure=structure,
        real_structure=check_structure(test, statistics),
        novelty=novelty(train, test, dags, structure.valid_B),
        leaks=leak_curve(train, data.held_out, dags, measured=data.schema.measured_columns),
        weight_attacks=(likelihood_attack(checkpoint.model, data.schema, train, data.held_out),),
        similarity=compare(train, test, dags, views, jobs=jobs),
        depth=compare_by_depth(train, test, dags, views),
        distributions=structure_distributions(train, test, dags, views),
        shares=attribute_shares(train, test, dags, views, vocabularies(data)),
    )


def _pictures(data: GraphDataset, dags: tuple[DAG, ...]) -> tuple[Picture, ...]:
    """Draw a real test graph of middling size and the sample nearest to it in size."""
    sizes_B = np.array([dag.num_nodes for dag in data.graphs["test"]])
    real = data.graphs["test"][int(np.argsort(sizes_B)[sizes_B.size // 3])]
    nearest = min(dags, key=lambda dag: abs(dag.num_nodes - real.num_nodes))
    return (
        picture_of(data, real, "real test job"),
        picture_of(data, nearest, "sampled job"),
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
    tests = decoded_jobs(map(data.schema.decode, data.graphs["test"]))
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
