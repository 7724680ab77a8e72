"""A study of models, plans and clusters, from YAML."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from functools import cached_property
from pathlib import Path
from types import GenericAlias
from typing import Any

import yaml

from layerdag.errors import ConfigError
from layerdag.hardware.devices import Device, require_device, shares_of
from layerdag.plan import FORMULAS, usual_setting
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
        gb_per_s: Bandwidth of a rank's link in 1e9 bytes per second.
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
        efficiency: Share of both peaks that kernels reach, in (0, 1]; by default the shares that
            training steps reach on the device. 1 is the data sheet, which no step reaches.
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
            ranks = [link.ranks for link in self.network]
            speeds = [link.gb_per_s for link in self.network]
            usual = "ring"
            if self.device in fitted_devices() and has_nodes(self.device, ranks, speeds):
                usual = _MEASURED
            object.__setattr__(self, "collectives", usual)
        elif self.collectives != _MEASURED:
            parse_implementation(self.collectives)
        elif self.device not in fitted_devices():
            raise ConfigError(
                f"collectives are '{_MEASURED}', and none were on '{self.device}'; known are "
                f"{', '.join(fitted_devices())}, or name an algorithm such as ring."
            )
        self.rates  # noqa: B018 (refuses an unknown device)
        self.simulated  # noqa: B018 (refuses impossible links)

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
        """The cluster as the simulator takes it."""
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

        Data beyond local memory is in expanded memory. Each kernel is taken to read
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


_NOT_TRIED = ("data", "attention", "ends_as_layers", "first_layers", "last_layers")
STUDIED = (*(name for name in FORMULAS.plan if name not in _NOT_TRIED), "micro_batches")
"""Settings of a plan that a study tries; ``data`` takes the ranks that the degrees leave."""


def _lists() -> Iterator[tuple[str, Any, tuple[Any]]]:
    for name in STUDIED:
        usual = usual_setting(name)
        yield name, GenericAlias(tuple, (type(usual), ...)), (usual,)


PlanSpace: Any = make_dataclass("PlanSpace", _lists(), frozen=True)
"""The values that are tried of each setting; the product of all is."""

StudiedStep: Any = make_dataclass(
    "StudiedStep",
    [
        ("batch", int),
        *(
            (name, type(usual_setting(name)), usual_setting(name))
            for name in FORMULAS.step
            if name not in ("batch", "micro_batches")
        ),
    ],
    frozen=True,
)
"""One step, in the words of ``layerdag.plan.Step``; the batch is that of all replicas."""


@dataclass(frozen=True)
class Study:
    """Models x plans x clusters.

    Attributes:
        models: What is trained or served.
        step: What one step does, a ``StudiedStep``.
        clusters: Where it may run, by name.
        plans: How it may be split, a ``PlanSpace``.
    """

    models: tuple[ModelShape, ...]
    step: Any
    clusters: Mapping[str, StudiedCluster]
    plans: Any = field(default_factory=PlanSpace)

    def __post_init__(self) -> None:
        if not self.models or not self.clusters:
            raise ConfigError("A study needs at least one model and one cluster.")
        for name in STUDIED:
            if not getattr(self.plans, name):
                raise ConfigError(f"plans.{name} is an empty list; write a value, or leave it out.")


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
    if isinstance(source, Mapping):
        where, content = "study", source
    else:
        where, content = str(source), _content(source)
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
    names, plans = content["model"], content.get("plans") or {}
    names = names if isinstance(names, list | tuple) else [names]
    if isinstance(plans, Mapping):  # a single value is a list of one
        plans = {n: v if isinstance(v, list | tuple) else [v] for n, v in plans.items()}
    try:
        return Study(
            models=tuple(n if isinstance(n, ModelShape) else model(str(n)) for n in names),
            step=build_settings(StudiedStep, content["step"], "step"),
            plans=build_settings(PlanSpace, plans, "plans"),
            clusters={
                str(name): _cluster(f"clusters.{name}", described)
                for name, described in clusters.items()
            },
        )
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _content(source: str | Path) -> Mapping[str, Any]:
    try:
        content = load_yaml(read_whole(Path(source), MAX_CONFIG_BYTES, ConfigError).decode())
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{source}: cannot be read as YAML ({error}).") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{source}: a study is a mapping with the keys {', '.join(_KEYS)}.")
    return content


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
