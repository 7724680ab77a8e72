"""Labeled steps of language models, as a corpus to learn from."""

import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import yaml

from layerdag.codec.folding import RankClassTrace, job_graph
from layerdag.codec.vocabulary import COLLECTIVE_NAMES, SEND
from layerdag.errors import ConfigError, UsageError
from layerdag.graph.attributed_graph import LABEL, AttributedGraph, Condition, encode_json
from layerdag.graph.rolled_blocks import REPEATS, rolled
from layerdag.runtime.files import FolderKind, atomic_folder, unexpected_files
from layerdag.runtime.reading import read_whole
from layerdag.runtime.rng import numpy_generator
from layerdag.runtime.settings import MAX_CONFIG_BYTES, build_settings, load_yaml
from layerdag.runtime.terminal import track
from layerdag.simulator.run import simulate
from layerdag.version import __version__
from layerdag.workloads.exploration import NetworkDimension, StudiedCluster
from layerdag.workloads.transformer.costs import rank_memory
from layerdag.workloads.transformer.hugging_face import model
from layerdag.workloads.transformer.job import SymbolicJob
from layerdag.workloads.transformer.plan import Plan, Recompute, Step
from layerdag.workloads.transformer.shapes import ModelShape

FAMILIES = {
    "gpt3": "gpt3-6.7b",
    "llama2": "llama2-7b",
    "llama3": "llama3-8b",
    "qwen2.5": "qwen2.5-72b",
    "qwen3": "qwen3-8b",
}
"""Dense models whose proportions the points of a family have, by the family's name."""


@dataclass(frozen=True)
class Machine:
    """Nodes of equal accelerators.

    Attributes:
        device: Accelerator by name.
        memory_gib: Memory of each; a point that needs more is not drawn.
        node_ranks: Accelerators of a node, behind one switch.
        node_gb_per_s: Bandwidth of a link inside a node in 1e9 bytes per second.
        node_latency_ns: Latency of a hop inside a node.
        gb_per_s: Bandwidth of a link between nodes.
        latency_ns: Latency of a hop between nodes.
    """

    device: str = "h100"
    memory_gib: float = 80.0
    node_ranks: int = 8
    node_gb_per_s: float = 450.0
    node_latency_ns: float = 500.0
    gb_per_s: float = 50.0
    latency_ns: float = 2000.0

    def cluster(self, ranks: int) -> StudiedCluster:
        """Return a cluster of so many accelerators, a multiple of a node's or fewer than a node's.

        Raises:
            ConfigError: If nodes would be filled in part.
        """
        inside = min(ranks, self.node_ranks)
        if ranks % inside:
            raise ConfigError(
                f"machine: {ranks} ranks do not fill nodes of {self.node_ranks}; choose a multiple."
            )
        links = [NetworkDimension("Switch", inside, self.node_gb_per_s, self.node_latency_ns)]
        if ranks > inside:
            links.append(
                NetworkDimension("Switch", ranks // inside, self.gb_per_s, self.latency_ns)
            )
        # The data sheet at 100 %, as the shipped checkpoint learned its labels.
        return StudiedCluster(
            tuple(links),
            self.device,
            memory_gib=self.memory_gib,
            efficiency=1.0,
            collectives="ring",
        )


_MOST = 2**31 - 1


@dataclass(frozen=True)
class CorpusSpace:
    """The choices for each part of a point; a point takes one of each, at random.

    Attributes:
        models: Presets or ``config.json`` files by the word that the condition "family" gets. A
            point has the proportions of the model with other numbers of layers and width.
        layers: Transformer layers; of these, pipeline stages get equal shares.
        test_layers: Layers of the points of the test part, to see how a model does on deeper jobs
            than it learned from; empty: those of the others.
        hidden: Widths.
        sequence: Tokens of a sequence.
        micro_batch_size: Sequences of a micro-batch on one replica.
        tensor: Ranks that share matrices.
        pipeline: Stages.
        rounds: Micro-batches of a step for each stage of the pipeline.
        world_size: Ranks; the data-parallel degree follows.
        zero: ZeRO stages, 0 or 1: the weights that stages 2 and 3 gather and scatter for each
            layer ahead of time connect blocks as no word says.
        sequence_parallel: Whether norms are split over tensor ranks, too.
        recompute: "none", "selective", "full".
        most_passes: Stages x micro-batches that a point may have: its graph holds the layers of
            each once.
        machine: What labels are simulated on.
    """

    models: Mapping[str, str] = field(default_factory=lambda: dict(FAMILIES))
    layers: tuple[int, ...] = tuple(range(8, 97, 4))
    hidden: tuple[int, ...] = (1024, 2048, 3072, 4096, 5120, 6144, 8192, 10240, 12288)
    sequence: tuple[int, ...] = (1024, 2048, 4096, 8192)
    micro_batch_size: tuple[int, ...] = (1, 2, 4)
    tensor: tuple[int, ...] = (1, 2, 4, 8)
    pipeline: tuple[int, ...] = (1, 2)
    rounds: tuple[int, ...] = (1, 2)
    world_size: tuple[int, ...] = tuple(2**k for k in range(11))
    zero: tuple[int, ...] = (0, 1)
    sequence_parallel: tuple[bool, ...] = (False, True)
    recompute: tuple[Recompute, ...] = ("none", "full")
    most_passes: int = 4
    machine: Machine = field(default_factory=Machine)
    test_layers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in _CHOICES:
            if not getattr(self, name):
                raise ConfigError(f"'{name}' is empty; a point needs a value of it.")
        for name in (*_COUNTS, "test_layers"):
            wrong = [value for value in getattr(self, name) if not 1 <= value <= _MOST]
            if wrong:
                raise ConfigError(f"'{name}' has {wrong[0]}; it must be 1 to {_MOST:,}.")
        both = sorted(set(self.layers) & set(self.test_layers))
        if both:
            raise ConfigError(
                f"'layers' and 'test_layers' both have {both[0]}; the test part would hold points "
                "of the training part."
            )
        if not self.models:
            raise ConfigError("'models' is empty; name at least one family and its model.")
        if set(self.zero) - {0, 1}:
            raise ConfigError(
                f"'zero' is {list(self.zero)}; corpora have ZeRO stages 0 and 1, whose layers "
                "repeat as blocks."
            )


_COUNTS = (
    "layers", "hidden", "sequence", "micro_batch_size", "tensor", "pipeline", "rounds",
    "world_size",
)  # fmt: skip
_CHOICES = (
    *_COUNTS, "zero", "sequence_parallel", "recompute",
)  # fmt: skip


def read_space(source: str | Path | Mapping[str, Any] | None = None) -> CorpusSpace:
    """Read a space from a YAML file or a mapping; what it leaves out is as in ``CorpusSpace``.

    Raises:
        ConfigError: If it cannot be read, or a value is not possible; says which.
    """
    if source is None:
        return CorpusSpace()
    if isinstance(source, Mapping):
        return _space("space", source)
    try:
        content = load_yaml(read_whole(Path(source), MAX_CONFIG_BYTES, ConfigError).decode())
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{source}: cannot be read as YAML ({error}).") from None
    if not isinstance(content, Mapping):
        raise ConfigError(f"{source}: a space is a mapping such as 'tensor: [1, 2, 4]'.")
    return _space(str(source), content)


def _space(where: str, content: Mapping[str, Any]) -> CorpusSpace:
    """Build a space; a single value is a list of one."""
    values = dict(content)
    models = values.pop("models", None) or dict(FAMILIES)
    if not isinstance(models, Mapping):
        raise ConfigError(f"{where}: 'models' must map families to models, {{mine: gpt3-13b}}.")
    for name in (*_CHOICES, "test_layers"):
        if name in values and not isinstance(values[name], list | tuple):
            values[name] = [values[name]]
    try:
        space = build_settings(CorpusSpace, values, "space")
        return replace(space, models={str(name): str(shape) for name, shape in models.items()})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


_ATTEMPTS = 10_000
"""Draws in a row without a new point after which a space counts as exhausted."""


@final
@dataclass(frozen=True)
class CorpusPoint:
    """A model under a plan with a batch.

    Attributes:
        family: Word of its model.
        job: Model, plan and step.
    """

    family: str
    job: SymbolicJob

    @property
    def conditions(self) -> dict[str, Condition]:
        """What a user would ask for: degrees as words, sizes as numbers."""
        shape, plan, step = self.job.shape, self.job.plan, self.job.step
        return {
            "family": self.family,
            "tensor": str(plan.tensor),
            "pipeline": str(plan.pipeline),
            "data": str(plan.data),
            "micro_batches": str(step.micro_batches),
            "zero": str(plan.zero),
            "sequence_parallel": "yes" if plan.sequence_parallel else "no",
            "recompute": plan.recompute,
            "layers": float(shape.layers),
            "hidden": float(shape.hidden),
            "sequence": float(step.sequence),
            "micro_batch_size": step.batch / plan.data / step.micro_batches,
            "batch": float(step.batch),
        }


def draw_points(
    space: CorpusSpace, seed: int, stream: str = "points of a corpus"
) -> Iterator[CorpusPoint]:
    """Yield different points that are possible and fit into the memory of the space's machine.

    Args:
        space: What is drawn from.
        seed: The same seed and stream give the same points.
        stream: Name of the random generator.

    Raises:
        UsageError: If no further point is found.
        ConfigError: If a model of the space is unknown.
    """
    rng = numpy_generator(seed, stream)
    shapes = {family: model(name) for family, name in sorted(space.models.items())}
    seen: set[CorpusPoint] = set()
    failed = 0
    while failed < _ATTEMPTS:
        point = _possible(space, shapes, rng)
        if point is None or point in seen:
            failed += 1
            continue
        failed = 0
        seen.add(point)
        yield point
    raise UsageError(
        f"Only {len(seen)} different points were found that are possible and fit into "
        f"{space.machine.memory_gib:g} GiB; ask for fewer, or widen the space."
    )


def _possible(
    space: CorpusSpace, shapes: dict[str, ModelShape], rng: np.random.Generator
) -> CorpusPoint | None:
    """Draw a point; None where no job can be like that."""

    def one(name: str) -> int:
        values = getattr(space, name)
        return int(values[rng.integers(len(values))])

    family = list(shapes)[rng.integers(len(shapes))]
    layers, hidden, sequence, size = map(one, ("layers", "hidden", "sequence", "micro_batch_size"))
    tensor, pipeline, rounds, ranks = map(one, ("tensor", "pipeline", "rounds", "world_size"))
    zero, split = one("zero"), bool(one("sequence_parallel"))
    recompute = space.recompute[rng.integers(len(space.recompute))]
    data, rest = divmod(ranks, tensor * pipeline)
    if rest or data < 1 or layers % pipeline:
        return None
    micro_batches = pipeline * rounds
    if pipeline * micro_batches > space.most_passes:
        return None
    try:
        job = SymbolicJob(
            scaled(shapes[family], layers, hidden, sequence),
            Plan(
                data=data, tensor=tensor, pipeline=pipeline, zero=zero if data > 1 else 0,
                sequence_parallel=split and tensor > 1, recompute=recompute,
            ),
            Step(batch=size * data * micro_batches, sequence=sequence, micro_batches=micro_batches),
        )  # fmt: skip
    except ConfigError:
        return None
    used = max(rank_memory(job.costs, stage).total for stage in range(pipeline))
    return CorpusPoint(family, job) if used <= space.machine.memory_gib * 2**30 else None


def scaled(shape: ModelShape, layers: int, hidden: int, sequence: int) -> ModelShape:
    """Return a model of the same proportions with other numbers of layers and width.

    Raises:
        ConfigError: If heads would be in parts, or sequences longer than its positions.
    """
    head = shape.head_size or shape.hidden // shape.heads
    heads, rest = divmod(hidden, head)
    keys, part = divmod((shape.kv_heads or shape.heads) * heads, shape.heads)
    if rest or part or not heads or not keys:
        raise ConfigError(f"{shape.name}: a width of {hidden} has no whole number of heads.")
    if 0 < shape.positions < sequence:
        raise ConfigError(f"{shape.name}: has {shape.positions} positions, not {sequence}.")
    return replace(
        shape, layers=layers, hidden=hidden, heads=heads, kv_heads=keys if shape.kv_heads else 0,
        feed_forward=round(shape.feed_forward * hidden / shape.hidden),
    )  # fmt: skip


_MEASURED = ("duration",)


def point_graph(point: CorpusPoint, name: str = "point") -> AttributedGraph:
    """Return the graph of a point's job with repeated layers held once.

    Operators are those of ``layerdag workload`` without layer and micro-batch; communication is
    called as importers call it. Times are left out: nothing was measured.
    """
    job = point.job
    workload = job.workload()
    per_stage = job.plan.ranks // job.plan.pipeline
    classes = [
        RankClassTrace(workload.traces[first], tuple(range(first, first + per_stage)))
        for first in range(0, job.plan.ranks, per_stage)
    ]
    graph = job_graph(name, classes, workload.groups, point.conditions)
    named = zip(*(graph.categories[key] for key in ("op", "type", "collective")), strict=True)
    operators = [
        COLLECTIVE_NAMES[collective] if kind == "COMM_COLL" else SEND if kind == "MESSAGE" else op
        for op, kind, collective in named
    ]
    return rolled(
        replace(
            graph,
            categories={**graph.categories, "op": operators},
            numbers={k: v for k, v in graph.numbers.items() if k not in _MEASURED},
            units={k: v for k, v in graph.units.items() if k not in _MEASURED},
        ),
        smallest=1,
    )


def matches_layers(graph: AttributedGraph, point: CorpusPoint) -> bool:
    """Return whether the blocks of a graph are the layers of a stage."""
    return graph.conditions[REPEATS] == point.job.shape.layers / point.job.plan.pipeline


def labelled(graph: AttributedGraph, point: CorpusPoint, machine: Machine) -> AttributedGraph:
    """Return the graph with the time of a step in seconds on a cluster of such machines."""
    cluster = machine.cluster(point.job.plan.ranks)
    result = simulate(point.job.workload(), cluster.simulated, compute=cluster.compute(0))
    return replace(graph, conditions={**graph.conditions, LABEL: result.makespan_ns / 1e9})


MANIFEST, LABELS, GRAPHS = "corpus.json", "labels.csv", "graphs"
_FORMAT = "layerdag-llm-corpus"


def write_corpus(
    out: str | Path, num: int, seed: int = 0, *, space: CorpusSpace | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Write ``num`` points as labelled graphs, and return what the manifest says.

    ``graphs/point-00000.json.gz`` and so on are graphs of whole jobs with their conditions,
    ``labels.csv`` has the part of each (eight of ten train, then val, then test) and the simulated
    time of a step in seconds. No point is in two parts. About a second for each point.

    Args:
        out: The folder.
        num: How many points.
        seed: The same seed, number and space give the same bytes.
        space: What is drawn from.
        overwrite: Whether a corpus there may be replaced.

    Raises:
        UsageError: If the space has too few points, or ``out`` holds something else.
        ConfigError: If a model of the space is unknown.
    """
    space = space or CorpusSpace()
    rows: list[dict[str, object]] = []
    labels: list[float] = []
    with atomic_folder(out, CORPUS, overwrite=overwrite) as draft:
        (draft / GRAPHS).mkdir()
        for i, graph in enumerate(track(_graphs(space, num, seed), "points", num)):
            data = gzip.compress(encode_json(graph), mtime=0)
            (draft / GRAPHS / f"{graph.name}.json.gz").write_bytes(data)
            labels.append(float(graph.conditions[LABEL]))
            name = f"{GRAPHS}/{graph.name}"
            rows.append({"name": name, "split": _part(i), LABEL: labels[-1]})
        manifest = {
            "format": _FORMAT, "layerdag": __version__, "num": num, "seed": seed,
            "parts": dict(Counter(str(row["split"]) for row in rows)),
            "label_s": {"least": min(labels), "most": max(labels)}, "space": asdict(space),
        }  # fmt: skip
        (draft / LABELS).write_text(_csv(rows))
        (draft / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def _graphs(space: CorpusSpace, num: int, seed: int) -> Iterator[AttributedGraph]:
    points = draw_points(space, seed)
    test_points = points
    if space.test_layers:
        deeper = replace(space, layers=space.test_layers, test_layers=())
        test_points = draw_points(deeper, seed, "test points of a corpus")
    for i in range(num):
        yield _next_graph(test_points if _part(i) == "test" else points, i, space.machine)


def _next_graph(points: Iterator[CorpusPoint], index: int, machine: Machine) -> AttributedGraph:
    for point in points:
        graph = point_graph(point, f"point-{index:05d}")
        if matches_layers(graph, point):
            return labelled(graph, point, machine)
    raise AssertionError("draw_points ends by an error")


def _part(index: int) -> str:
    return {8: "val", 9: "test"}.get(index % 10, "train")


def _csv(rows: list[dict[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["name", "split", LABEL], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _doubt_corpus(folder: Path) -> str:
    strange = unexpected_files(folder, (MANIFEST, LABELS, GRAPHS).__contains__)
    if strange:
        return strange
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError, RecursionError):
        return f"has no readable {MANIFEST}"
    proved = isinstance(manifest, dict) and manifest.get("format") == _FORMAT
    return "" if proved else f"has a {MANIFEST} that is not of a corpus"


CORPUS = FolderKind("a corpus of training steps", _doubt_corpus)
