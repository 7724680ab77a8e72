"""What a corpus is drawn from: models, plans, batches, and the machine that labels are for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from layerdag._runtime import MAX_CONFIG_BYTES, build_settings, load_yaml, read_whole
from layerdag.errors import ConfigError
from layerdag.workloads.exploration import Link, StudiedCluster
from layerdag.workloads.symbolic.plans import Recompute

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
        links = [Link("Switch", inside, self.node_gb_per_s, self.node_latency_ns)]
        if ranks > inside:
            links.append(Link("Switch", ranks // inside, self.gb_per_s, self.latency_ns))
        return StudiedCluster(tuple(links), self.device, memory_gib=self.memory_gib)


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


_CHOICES = (
    "layers", "hidden", "sequence", "micro_batch_size", "tensor", "pipeline", "rounds",
    "world_size", "zero", "sequence_parallel", "recompute",
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
