"""A study of models, plans and clusters, from YAML."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from layerdag.errors import ConfigError
from layerdag.hardware.devices import Device, require_device, shares_of
from layerdag.runtime.reading import read_whole
from layerdag.runtime.settings import MAX_CONFIG_BYTES, build_settings, did_you_mean, load_yaml
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.collectives import parse_implementation
from layerdag.simulator.compute import RooflineCompute
from layerdag.simulator.config import (
    Dimension,
    GroupCollectives,
    NetworkConfig,
    SystemConfig,
    Topology,
)
from layerdag.simulator.fitted_collectives import fitted_devices, has_nodes
from layerdag.workloads.transformer.hugging_face import model
from layerdag.workloads.transformer.shapes import ModelShape

GIB = 1 << 30


@dataclass(frozen=True)
class NetworkDimension:
    """One dimension of a cluster's network; the first connects neighboring ranks.

    Attributes:
        topology: "Ring", "FullyConnected" or "Switch".
        ranks: Ranks along it.
        gb_per_s: Bandwidth of a rank's link in 1e9 bytes per second.
        latency_ns: Latency of a hop in ns.
    """

    topology: str
    ranks: int
    gb_per_s: float
    latency_ns: float = 1000.0

    def dimension(self) -> Dimension:
        """Return it as the simulator takes it.

        Raises:
            ConfigError: If a number is not possible or there is no such topology.
        """
        known = {topology.value: topology for topology in Topology}
        if self.topology not in known:
            raise ConfigError(
                f"network: there is no topology '{self.topology}'."
                f"{did_you_mean(self.topology, known)} Known: {', '.join(known)}."
            )
        speed = self.gb_per_s * 1e9 / GIB
        return Dimension(known[self.topology], self.ranks, speed, self.latency_ns)


_MEASURED = "measured"
"""Of ``StudiedCluster.collectives``: as they were timed on the device."""


@dataclass(frozen=True)
class StudiedCluster:
    """Equal accelerators and the network between them.

    Attributes:
        network: Its dimensions; their ranks multiply to the number of accelerators.
        device: Accelerator by name ("h100"), for its rates; or give both rates.
        tflops: Peak rate in 1e12 operations per second, in the number format of the step.
        memory_gb_per_s: Bandwidth of its memory in 1e9 bytes per second.
        memory_gib: Its memory in GiB.
        efficiency: Share of both peaks that kernels reach, in (0, 1]; by default the shares that
            training steps reach on the device. 1 is the data sheet, which no step reaches.
        launch_ns: Fixed cost of a kernel in ns.
        expanded_gib: Further memory per accelerator that is reached over a slower link (CXL, host).
        expanded_gb_per_s: Bandwidth of that link in 1e9 bytes per second.
        cost_per_hour: Price of one accelerator for an hour, in any currency; 0 for unknown.
        collectives: Algorithm of collectives in each dimension: "ring", "direct", ...; an
            all-to-all is direct, as NCCL's is. "measured": the times of NCCL in a node of the
            device, and its choice among nodes. By default measured where the device's were and
            nodes have 8 accelerators, else ring.
    """

    network: tuple[NetworkDimension, ...]
    device: str | None = None
    tflops: float | None = None
    memory_gb_per_s: float | None = None
    memory_gib: float = 80.0
    efficiency: float | None = None
    launch_ns: float = 0.0
    expanded_gib: float = 0.0
    expanded_gb_per_s: float = 0.0
    cost_per_hour: float = 0.0
    collectives: str | None = None

    def __post_init__(self) -> None:
        if not self.network:
            raise ConfigError("network must have at least one dimension.")
        for name in ("memory_gib", "tflops", "memory_gb_per_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name} is {value!r}; it must be a positive number.")
        for name in ("expanded_gib", "expanded_gb_per_s", "cost_per_hour"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must not be negative.")
        if self.expanded_gib and not self.expanded_gb_per_s:
            raise ConfigError("expanded_gib needs expanded_gb_per_s, the bandwidth to reach it.")
        if self.collectives is None:
            object.__setattr__(self, "collectives", self._usual_collectives())
        elif self.collectives != _MEASURED:
            parse_implementation(self.collectives)
        elif self.device not in fitted_devices():
            raise ConfigError(
                f"collectives are '{_MEASURED}', and none were on '{self.device}'; known are "
                f"{', '.join(fitted_devices())}, or name an algorithm such as ring."
            )
        self.rates  # noqa: B018 (refuses an unknown device)
        self.simulated  # noqa: B018 (refuses impossible links)

    def _usual_collectives(self) -> str:
        ranks = [link.ranks for link in self.network]
        speeds = [link.gb_per_s for link in self.network]
        if self.device in fitted_devices() and has_nodes(self.device, ranks, speeds):
            return _MEASURED
        return "ring"

    @property
    def ranks(self) -> int:
        """Number of accelerators."""
        return math.prod(link.ranks for link in self.network)

    @property
    def capacity(self) -> float:
        """Memory of an accelerator in bytes, expanded memory included."""
        return (self.memory_gib + self.expanded_gib) * GIB

    @cached_property
    def rates(self) -> Device:
        """Peak rates; those that were given replace those of the named device."""
        if self.device is None and (self.tflops is None or self.memory_gb_per_s is None):
            raise ConfigError("give a device, or both tflops and memory_gb_per_s.")
        known = require_device(self.device) if self.device else Device("own", {}, 0.0)
        if self.tflops is not None:
            every = dict.fromkeys(("f64", "f32", "bf16", "i8"), self.tflops * 1e12)
            known = replace(known, flops=every)
        if self.memory_gb_per_s is not None:
            known = replace(known, bytes_per_s=self.memory_gb_per_s * 1e9)
        return known

    @cached_property
    def simulated(self) -> Cluster:
        """What the simulator runs on."""
        network = NetworkConfig(tuple(link.dimension() for link in self.network))
        if self.collectives == _MEASURED:
            system = SystemConfig.uniform("ring", len(self.network))
            system = replace(system, fitted_collectives=self.device)
        else:
            system = SystemConfig.uniform(str(self.collectives), len(self.network))
        system = replace(system, all_to_all=("direct",) * len(self.network))
        # A flat ring over ranks of several nodes would take the speed of the first dimension.
        grids = GroupCollectives.HIERARCHICAL
        return Cluster(network, replace(system, group_collectives=grids))

    @property
    def collectives_in_words(self) -> str:
        """How collectives are timed, in words."""
        if self.collectives != _MEASURED:
            return str(self.collectives)
        return "measured in nodes of 8, among nodes by the last dimension as NCCL chooses"

    def compute(self, used_bytes: int) -> RooflineCompute:
        """Return the compute model of ranks that use so much memory.

        What does not fit into local memory lies in expanded memory. Each kernel is taken to read
        and write both in proportion to their share of all used bytes, one after the other (the
        serial form of COMET's hybrid memory).
        """
        device = self.rates
        away = max(used_bytes - self.memory_gib * GIB, 0.0) / max(used_bytes, 1)
        if away:
            seconds_per_byte = (1 - away) / device.bytes_per_s + away / self.expanded_gb_per_s / 1e9
            device = replace(device, bytes_per_s=1 / seconds_per_byte)
        if self.efficiency is not None:
            return RooflineCompute(device, self.efficiency, self.launch_ns)
        shares = shares_of(self.device)
        return RooflineCompute(
            device, shares.compute, self.launch_ns, memory_efficiency=shares.memory
        )


@dataclass(frozen=True)
class PlanSpace:
    """What is tried of each part of a plan; the product of all lists is. ``data`` takes the rest.

    Attributes:
        tensor: Ranks that share matrices.
        pipeline: Stages that share the layers.
        context: Ranks that share each sequence.
        expert: Ranks that share the experts.
        micro_batches: Parts of a replica's batch.
        zero: ZeRO stages.
        recompute: "none", "selective", "full".
        sequence_parallel: Whether norms are split over tensor ranks, too.
        schedule: "1f1b", "gpipe", "zb-h1".
        virtual_stages: Groups of layers that each stage holds (interleaved 1F1B).
        expert_tensor: 0 (experts are split over tensor ranks), 1 (spread over them).
    """

    tensor: tuple[int, ...] = (1,)
    pipeline: tuple[int, ...] = (1,)
    context: tuple[int, ...] = (1,)
    expert: tuple[int, ...] = (1,)
    micro_batches: tuple[int, ...] = (1,)
    zero: tuple[int, ...] = (0,)
    recompute: tuple[str, ...] = ("none",)
    sequence_parallel: tuple[bool, ...] = (False,)
    schedule: tuple[str, ...] = ("1f1b",)
    virtual_stages: tuple[int, ...] = (1,)
    expert_tensor: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        for each in fields(self):
            if not getattr(self, each.name):
                raise ConfigError(
                    f"plans.{each.name} is an empty list; write a value, or leave it out."
                )


@dataclass(frozen=True)
class StudiedStep:
    """What one step does; see ``layerdag.plan.Step``.

    Attributes:
        batch: Sequences of a step, of all replicas together.
        sequence: Tokens of a sequence; images have a number of their own.
        phase: "training", "prefill", "decode" or "inference".
        tokens: Tokens that decode makes.
        precision: "bf16", "fp16", "bf16-fp32-gradients", "fp32", "fp8", "mxfp8", "nvfp4".
        causal: Operations of causal attention, "full" or "half".
    """

    batch: int
    sequence: int = 2048
    phase: str = "training"
    tokens: int = 1
    precision: str = "bf16"
    causal: str = "full"


@dataclass(frozen=True)
class Study:
    """Models x plans x clusters.

    Attributes:
        models: What is trained or served.
        step: What one step does.
        plans: How it may be split.
        clusters: Where it may run, by name.
    """

    models: tuple[ModelShape, ...]
    step: StudiedStep
    clusters: Mapping[str, StudiedCluster]
    plans: PlanSpace = field(default_factory=PlanSpace)

    def __post_init__(self) -> None:
        if not self.models or not self.clusters:
            raise ConfigError("A study needs at least one model and one cluster.")


_KEYS = ("model", "step", "plans", "clusters")


def read_study(source: str | Path | Mapping[str, Any]) -> Study:
    """Read a study from a YAML file, or from what such a file holds.

    Example::

        model: llama3-70b                  # or a list; names of 'layerdag workload --list'
        step: {batch: 512, sequence: 4096}
        plans: {tensor: [1, 2, 4, 8], pipeline: [1, 4, 8], zero: [0, 1, 3], micro_batches: [1, 16]}
        clusters:
          pods:
            device: h100
            memory_gib: 80
            cost_per_hour: 2.5
            network:
              - {topology: Switch, ranks: 8, gb_per_s: 450, latency_ns: 500}
              - {topology: Switch, ranks: 128, gb_per_s: 50, latency_ns: 2000}

    A ``config.json`` among the models is relative to the current folder.

    Raises:
        ConfigError: If it cannot be read, a key is unknown or missing, or a value is not possible;
            says which.
    """
    where, content = _content(source)
    unknown = [str(key) for key in content if key not in _KEYS]
    if unknown:
        raise ConfigError(
            f"{where}: unknown key '{unknown[0]}'.{did_you_mean(unknown[0], _KEYS)} Known: "
            f"{', '.join(_KEYS)}."
        )
    for key in ("model", "step", "clusters"):
        if not content.get(key):
            raise ConfigError(f"{where}: '{key}' is missing.")
    clusters = content["clusters"]
    if not isinstance(clusters, Mapping):
        raise ConfigError(f"{where}: 'clusters' must map names to descriptions.")
    try:
        return Study(
            models=_models(content["model"]),
            step=build_settings(StudiedStep, content["step"], "step"),
            plans=build_settings(PlanSpace, _as_lists(content.get("plans") or {}), "plans"),
            clusters={
                str(name): _cluster(f"clusters.{name}", described)
                for name, described in clusters.items()
            },
        )
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _content(source: str | Path | Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    if isinstance(source, Mapping):
        return "study", source
    try:
        content = load_yaml(read_whole(Path(source), MAX_CONFIG_BYTES, ConfigError).decode())
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{source}: cannot be read as YAML ({error}).") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{source}: a study is a mapping with the keys {', '.join(_KEYS)}.")
    return str(source), content


def _models(value: Any) -> tuple[ModelShape, ...]:
    names = value if isinstance(value, list | tuple) else [value]
    return tuple(name if isinstance(name, ModelShape) else model(str(name)) for name in names)


def _as_lists(plans: Any) -> Any:
    """Return the lists of a plan space; a single value is a list of one."""
    if not isinstance(plans, Mapping):
        return plans
    return {
        name: value if isinstance(value, list | tuple) else [value] for name, value in plans.items()
    }


def _cluster(where: str, described: Any) -> StudiedCluster:
    if isinstance(described, StudiedCluster):
        return described
    if isinstance(described, Mapping) and not isinstance(described.get("network"), list | tuple):
        raise ConfigError(f"{where}.network must be a list of dimensions.")
    try:
        return build_settings(StudiedCluster, described, where)
    except ConfigError as error:
        message = str(error)
        raise ConfigError(message if where in message else f"{where}: {message}") from None
