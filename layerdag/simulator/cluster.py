"""``Cluster``, its presets, and the configuration files of ASTRA-sim.

Values of ASTRA-sim's configuration files, by its own readers' rules; complaints name the key.

Numbers of ``network.yml`` are read as yaml-cpp reads them: from the text of the scalar, quoted or
not, so that a bandwidth of ``010`` is ten, ``1e3`` a number and ``0x10`` none. Flags of JSON are
numbers: ``false`` is not 0 there, so it switches a feature on.
"""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import yaml

from layerdag.errors import ConfigError, UsageError, WrongNameError
from layerdag.hardware.collectives import COLLECTIVES
from layerdag.runtime.json_shape import found_value, from_json, parse_json
from layerdag.runtime.reading import read_whole
from layerdag.runtime.settings import MAX_CONFIG_BYTES, did_you_mean, load_yaml_texts, shorten
from layerdag.simulator.collectives import parse_implementation
from layerdag.simulator.compute import ComputeModel
from layerdag.simulator.config import (
    Dimension,
    GroupCollectives,
    MemoryConfig,
    MemoryKind,
    MissingImplementations,
    NetworkConfig,
    RunOptions,
    SystemConfig,
    Topology,
    UnsupportedCollectives,
)
from layerdag.simulator.fitted_collectives import fitted_devices

C = TypeVar("C")
SMALL = "small"
"""Name of the described cluster."""
SIMULATED = "simulated"
"""Of ``--collectives``: all of them run on the network."""


@runtime_checkable
class ClusterOfAnySize(Protocol):
    """What becomes a cluster for the ranks of a workload: a cluster or a calibrated machine."""

    def with_ranks(self, num_ranks: int, /) -> "Cluster":
        """Return the cluster with ``num_ranks`` ranks."""
        ...


@dataclass(frozen=True, init=False)
class Cluster:
    """Everything about the machine that a run needs.

    ``Cluster("small")`` is a described cluster that comes in every size: ``simulate`` gives it as
    many ranks as the workload has, ``Cluster("small", num_ranks=8)`` has 8. It is one switch with
    25 GB/s and 1000 ns per link, ring collectives in one chunk, 10 ns endpoint delay: round numbers
    in the range of one network card per rank, not a model of a certain machine. Unlike the
    reference it replays collectives that the model does not know (BARRIER, GATHER, groups of one
    rank) at their recorded duration.

    Attributes:
        network: Dimensions; their sizes multiply to the number of ranks.
        system: Algorithms, chunking, local compute rates.
        memory: Remote memory.
        options: Congestion model, queues, rendezvous.
        compute: The compute model that suits it, or its name, where ``simulate`` is given none.
        preset_name: Name of the described cluster while its size is open; "" for a given size.
    """

    network: NetworkConfig
    system: SystemConfig
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    options: RunOptions = field(default_factory=RunOptions)
    compute: ComputeModel | str = field(default="reference", compare=False)
    preset_name: str = field(default="", compare=False)

    def __init__(
        self,
        network: NetworkConfig | str | None = None,
        system: SystemConfig | None = None,
        memory: MemoryConfig | None = None,
        options: RunOptions | None = None,
        *,
        num_ranks: int | None = None,
        compute: ComputeModel | str = "",
        preset_name: str = "",
        **guessed: object,
    ) -> None:
        """Describe a cluster: a network with its system, or the name of a described cluster.

        A system beside a name replaces its own; ``num_ranks`` fixes its size. ``guessed`` are names
        that other libraries have; the error says which is meant.

        Raises:
            UsageError: If there is no cluster of that name, or something is missing.
        """
        if guessed or network is None:
            found = next(iter(guessed), "cluster without a name or a network")
            right = 'Cluster("small", num_ranks=8), Cluster(network, system) or Cluster.from_files'
            raise WrongNameError(f"Cluster has no '{found}'; use {right}.")
        if isinstance(network, str):
            if network != SMALL:
                raise UsageError(
                    f"There is no cluster preset '{network}'.{did_you_mean(network, [SMALL])} "
                    f"Known are {SMALL}."
                )
            preset_name = network if num_ranks is None else ""
            npus = 1 if num_ranks is None else num_ranks
            network = NetworkConfig((Dimension(Topology.SWITCH, npus, 25.0, 1000.0),))
            system = system or dataclasses.replace(
                SystemConfig.uniform("ring"), unsupported_collectives=UnsupportedCollectives.REPLAY
            )
            compute = compute or "measured"
        elif num_ranks is not None and num_ranks != network.num_npus:
            raise UsageError(
                f"The network has {network.num_npus} ranks, and num_ranks is {num_ranks}; leave "
                "num_ranks out, or name a described cluster, such as Cluster('small', "
                f"num_ranks={num_ranks})."
            )
        if system is None:
            raise UsageError("A network needs a system beside it: Cluster(network, system).")
        values = {
            "network": network,
            "system": system,
            "memory": memory or MemoryConfig(),
            "options": options or RunOptions(),
            "compute": compute or "reference",
            "preset_name": preset_name,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def with_ranks(self, num_ranks: int) -> "Cluster":
        """Return a described cluster of open size with so many ranks; any other stays as it is."""
        if not self.preset_name:
            return self
        (dimension,) = self.network.dimensions
        network = NetworkConfig((dataclasses.replace(dimension, npus=num_ranks),))
        return dataclasses.replace(self, network=network, preset_name="")

    def changed(
        self,
        *,
        options: RunOptions | None = None,
        memory: MemoryConfig | None = None,
        collectives: str | None = None,
        group_collectives: str | None = None,
        missing: str | None = None,
        reference_semantics: bool = False,
    ) -> "Cluster":
        """Return the cluster as the flags of ``layerdag simulate`` of these names change it.

        Args:
            options: None keeps them.
            memory: None keeps it.
            collectives: Device whose measured collectives take their time, or "simulated"; None is
                the device of the compute model where the network has nodes like the measured ones.
            group_collectives: "flat" or "hierarchical"; None keeps what the system says.
            missing: "refuse" or "skip" a dimension without an implementation; None keeps it.
            reference_semantics: Whether every tick is that of ASTRA-sim.

        Raises:
            UsageError: If two of these contradict each other, or no such collectives were measured.
        """
        if reference_semantics and group_collectives == "hierarchical":
            raise UsageError(
                "--reference-semantics runs groups as flat rings; leave --group-collectives out."
            )
        if collectives and reference_semantics:
            raise UsageError(
                "--reference-semantics simulates collectives; leave --collectives out."
            )
        if collectives not in (None, SIMULATED, *fitted_devices()):
            raise UsageError(
                f"no collectives were measured on '{collectives}'; known are "
                f"{', '.join(fitted_devices())}, and {SIMULATED} runs all on the network."
            )
        if collectives is None and not (reference_semantics or group_collectives):
            fitted = self.system.fitted_collectives
        else:
            fitted = "" if collectives in (None, SIMULATED) else collectives
        groups = "flat" if reference_semantics else group_collectives
        system = dataclasses.replace(
            self.system,
            group_collectives=GroupCollectives(groups or self.system.group_collectives),
            missing=MissingImplementations(missing or self.system.missing),
            fitted_collectives=fitted,
        )
        return dataclasses.replace(
            self,
            system=system,
            options=options or self.options,
            memory=memory or self.memory,
        )

    def __repr__(self) -> str:
        """Return name or topology and the number of ranks in one line."""
        if self.preset_name:
            return f"Cluster({self.preset_name!r}, as many ranks as the workload has)"
        sizes = " x ".join(f"{d.topology.name}({d.npus})" for d in self.network.dimensions)
        return f"Cluster({shorten(sizes, 80)}, {self.num_ranks:,} ranks)"

    @classmethod
    def from_files(
        cls,
        *,
        system: str | Path,
        network: str | Path,
        memory: str | Path | None = None,
        options: RunOptions | None = None,
    ) -> "Cluster":
        """Read ASTRA-sim's configuration files: ``system.json``, ``network.yml``, ``memory.json``.

        Without ``memory`` there is no remote memory; ``options`` are what ASTRA-sim takes from its
        command line.

        Raises:
            ConfigError: If a file cannot be read, or holds a key or value that is not known.
        """
        return cls(
            system=read_system(system),
            network=read_network(network),
            memory=MemoryConfig() if memory is None else read_memory(memory),
            options=options or RunOptions(),
        )

    @property
    def num_ranks(self) -> int:
        """Number of ranks of the cluster."""
        return self.network.num_npus


_DOUBLE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[ \t]*", re.ASCII)
_INTEGER = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|\d+)[ \t]*", re.ASCII)


def yaml_number(key: str, text: str) -> float:
    """Return a number as yaml-cpp converts the scalar to a double."""
    if not _DOUBLE.fullmatch(text):
        raise ConfigError(f"{key} holds '{text}', which is no decimal number; write one like 50.0.")
    return float(text)


def yaml_integer(key: str, text: str) -> int:
    """Return an integer as yaml-cpp converts the scalar: 0x10 is 16, and 010 is 8."""
    match = _INTEGER.fullmatch(text)
    digits = match[2] if match else ""
    octal = len(digits) > 1 and digits[0] == "0" and digits[1] not in "xX"
    if not match or (octal and not set(digits) <= set("01234567")):
        raise ConfigError(f"{key} holds '{text}', which is no whole number; write one like 8.")
    value = int(digits, 8 if octal else 0)
    return -value if match[1] == "-" else value


_IMPLEMENTATIONS = {
    f"{row.name.replace('_', '-')}-implementation": row.name for row in COLLECTIVES if row.simulated
}
_SYSTEM = {
    "preferred-dataset-splits": "preferred_dataset_splits",
    "collective-optimization": "collective_optimization",
    "endpoint-delay": "endpoint_delay_ns",
    "active-chunks-per-dimension": "active_chunks_per_dimension",
    "scheduling-policy": "scheduling_policy",
    "local-mem-bw": "local_mem_bw_gb",
    "peak-perf": "peak_perf_tflops",
    "roofline-enabled": "roofline_enabled",
    "replay-only": "replay_only",
    "storage-bw": "storage_bw_gb",
    "track-local-mem": "track_local_mem",
    "local-mem-trace-filename": "local_mem_trace",
    **_IMPLEMENTATIONS,
}
"""Keys of ``system.json`` and the fields that they fill."""

_UNREAD = (
    *("boost-mode", "intra-dimension-scheduling", "inter-dimension-scheduling", "trace-enabled"),
    *("local-reduction-delay", "L", "o", "g", "G"),
)
"""Keys of ASTRA-sim's examples that change no tick there, with the features below switched off."""

_SHARED_BUS = "model-shared-bus"
"""A feature that is not modeled: only a value that switches it off is accepted."""

_CUSTOM = ("per-node-custom-implementation", *(f"{name}-custom" for name in _IMPLEMENTATIONS))
"""Keys that name traces of custom collectives, which are not modeled."""

_NETWORK_KEYS = ("topology", "npus_count", "bandwidth", "latency")
_MEMORY = {
    "memory-type": "kind",
    "remote-mem-latency": "latency_ns",
    "remote-mem-bw": "bandwidth_bytes_per_ns",
    "num-npus-per-node": "npus_per_node",
    "num-nodes": "num_nodes",
}
"""Keys of the remote memory's file and the fields that they fill."""


@contextmanager
def _file(
    path: str | Path, parser: Callable[[str], Any], language: str, known: Collection[str]
) -> Iterator[dict[str, Any]]:
    """Yield the values of a file by key; errors about them name it."""
    data = read_whole(path, MAX_CONFIG_BYTES, ConfigError)
    try:
        values = _parsed(data, parser, language)
        if not isinstance(values, dict):
            raise ConfigError("holds no mapping of keys to values; write one.")
        described = values.get("infrastructure", values)
        if isinstance(described, dict) and described.keys() >= {"devices", "instances", "edges"}:
            raise ConfigError(
                "is an InfraGraph (devices, instances and edges of a network), which is not read; "
                "write ASTRA-sim's network.yml, with topology, npus_count, bandwidth and latency "
                "of each dimension, and its system.json."
            )
        for key in values:
            if key not in known:
                raise ConfigError(
                    f"unknown key '{key}'.{did_you_mean(key, known)} Known are "
                    f"{', '.join(sorted(known))}."
                )
        yield values
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _require(values: Mapping[str, Any], why: Mapping[str, str]) -> None:
    """Raise ConfigError about the first key that is missing, and why it is needed."""
    for key, reason in why.items():
        if key not in values:
            raise ConfigError(f"key '{key}' is missing; {reason}.")


def _filled(cls: type[C], values: Mapping[str, Any], keys: Mapping[str, str]) -> C:
    """Return a dataclass whose fields the keys of a file fill."""
    found = {}
    for key, attribute in keys.items():
        if key in values:
            value = values[key]
            whole = isinstance(value, float) and value.is_integer()
            found[attribute] = int(value) if whole else value
    try:
        return from_json(cls, found)
    except ValueError as error:
        text = str(error)
        for key, attribute in keys.items():
            text = text.replace(f"'{attribute}", f"'{key}")
        raise ConfigError(f"{text}.") from None


def read_system(path: str | Path) -> SystemConfig:
    """Read ``system.json``.

    Raises:
        ConfigError: If the file is missing or no JSON, a key is unknown, a value is out of bounds,
            or a key is missing for which the reference has no usable default.
    """
    known = (*_SYSTEM, *_UNREAD, _SHARED_BUS, *_CUSTOM)
    with _file(path, parse_json, "JSON", known) as values:
        if values.get(_SHARED_BUS, 0) != 0:
            raise ConfigError(
                f"'{_SHARED_BUS}' is not modeled; set it to 0, or run your own ASTRA-sim with "
                "--backend astra-sim."
            )
        for key in _CUSTOM:
            if values.get(key, "") not in ([], ""):
                own = key.removesuffix("-custom")
                raise ConfigError(
                    f"'{key}' names custom collectives, which are not modeled; name algorithms "
                    f"under '{own if own != key else '*-implementation'}', e.g. [\"ring\"], or run "
                    "your own ASTRA-sim with --backend astra-sim."
                )
        _require(
            values,
            {
                "preferred-dataset-splits": "the reference crashes without it, write e.g. 4",
                "collective-optimization": "the reference has no default; write 'localBWAware'",
            },
        )
        for key in ("roofline-enabled", "replay-only", "track-local-mem"):
            flag = values.setdefault(key, 0)
            if isinstance(flag, bool) or flag not in (0, 1):
                taken = ", which ASTRA-sim takes for 1" if isinstance(flag, bool) else ""
                raise ConfigError(f"'{key}' is {found_value(flag)}{taken}; write 0 or 1.")
            values[key] = bool(flag)
        found = _filled(SystemConfig, values, _SYSTEM)
        for key, attribute in _IMPLEMENTATIONS.items():
            for name in getattr(found, attribute):
                try:
                    parse_implementation(name)
                except ConfigError as error:
                    raise ConfigError(f"{key}: {error}") from None
    return found


def read_network(path: str | Path) -> NetworkConfig:
    """Read ``network.yml``.

    Raises:
        ConfigError: If the file is missing or no YAML, a key is unknown or missing, the lists have
            different lengths, or a value is out of bounds.
    """
    with _file(path, load_yaml_texts, "YAML", _NETWORK_KEYS) as values:
        entry = "give one entry for each dimension, e.g. [ 8 ]"
        _require(values, dict.fromkeys(_NETWORK_KEYS, entry))
        for key in _NETWORK_KEYS:
            column = values[key]
            if not isinstance(column, list) or not all(isinstance(text, str) for text in column):
                raise ConfigError(
                    f"'{key}' is no list with one entry for each dimension; write one."
                )
        columns = [values[key] for key in _NETWORK_KEYS]
        if len({len(column) for column in columns}) != 1:
            sizes = ", ".join(str(len(column)) for column in columns)
            raise ConfigError(
                f"topology, npus_count, bandwidth and latency have {sizes} entries; "
                "give one for each dimension."
            )
        return NetworkConfig(tuple(_dimension(*row) for row in zip(*columns, strict=True)))


def _dimension(name: str, npus: str, bandwidth: str, latency: str) -> Dimension:
    names = [topology.value for topology in Topology]
    if name not in names:
        raise ConfigError(f"unknown topology '{name}'; write one of {', '.join(names)}.")
    return Dimension(
        Topology(name),
        yaml_integer("npus_count", npus),
        yaml_number("bandwidth", bandwidth),
        yaml_number("latency", latency),
    )


def read_memory(path: str | Path) -> MemoryConfig:
    """Read the remote memory's JSON file.

    Raises:
        ConfigError: If the file is missing or no JSON, a key is unknown or missing, or a value is
            out of bounds.
    """
    with _file(path, parse_json, "JSON", _MEMORY) as values:
        _require(values, {"memory-type": "write e.g. 'NO_MEMORY_EXPANSION'"})
        names = [kind.value for kind in MemoryKind]
        if values["memory-type"] not in names:
            raise ConfigError(
                f"'memory-type' is {found_value(values['memory-type'])}; write one of "
                f"{', '.join(names)}."
            )
        kind = MemoryKind(values["memory-type"])
        if kind is MemoryKind.NONE:
            return MemoryConfig()
        needed = {"remote-mem-latency": "give ns", "remote-mem-bw": "give GB/s"}
        if kind is MemoryKind.PER_NODE:
            needed["num-npus-per-node"] = "PER_NODE needs the ranks that share a memory"
            needed["num-nodes"] = "PER_NODE needs the number of memories"
        _require(values, needed)
        return _filled(
            MemoryConfig, values, {key: _MEMORY[key] for key in ("memory-type", *needed)}
        )


def _parsed(data: bytes, parser: Callable[[str], Any], language: str) -> Any:
    """Return what a file holds; a byte order mark is skipped, as in the reference."""
    try:
        return parser(data.decode("utf-8-sig"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = " ".join(filter(None, (error.context, error.problem)))
        raise ConfigError(f"is no {language} ({where}{problem}); repair or replace it.") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"is no {language} ({first}); repair or replace it.") from None
