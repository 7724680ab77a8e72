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
from typing import Any, Protocol, runtime_checkable

import yaml

from layerdag.errors import ConfigError, UsageError, WrongNameError
from layerdag.hardware.collectives import COLLECTIVES
from layerdag.runtime.json_shape import found_value, parse_json
from layerdag.runtime.reading import read_whole
from layerdag.runtime.settings import MAX_CONFIG_BYTES, did_you_mean, load_yaml_texts, shorten
from layerdag.simulator.collectives import parse_implementation
from layerdag.simulator.compute import ComputeModel
from layerdag.simulator.config import (
    OPTIMIZATIONS,
    POLICIES,
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
        """Describe a cluster.

        Args:
            network: Name of a described cluster, which is "small", or the network.
            system: Of a name None for the one that it has.
            memory: None for none.
            options: None for ASTRA-sim's defaults.
            num_ranks: Of a described cluster; None leaves it to the workload.
            compute: The compute model that suits it, or its name.
            preset_name: See the attribute.
            **guessed: Names that other libraries have; the error says which is meant.

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
        """Read ASTRA-sim's configuration files.

        Args:
            system: ``system.json``.
            network: ``network.yml``.
            memory: ``memory.json``; None for no remote memory.
            options: What ASTRA-sim takes from its command line; None for its defaults.

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


_INFRAGRAPH = {"devices", "instances", "edges"}
_DOUBLE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[ \t]*", re.ASCII)
_INTEGER = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|\d+)[ \t]*", re.ASCII)


class Section:
    """The keys of one file with their values."""

    def __init__(self, values: Any, known: Collection[str]) -> None:
        if not isinstance(values, dict):
            raise ConfigError("holds no mapping of keys to values; write one.")
        self._values: Mapping[str, Any] = values
        described = values.get("infrastructure", values)
        if isinstance(described, dict) and described.keys() >= _INFRAGRAPH:
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

    def has(self, key: str) -> bool:
        """Return whether ``key`` is given."""
        return key in self._values

    def required(self, key: str, why: str) -> Any:
        """Return a value that must be given."""
        if key not in self._values:
            raise ConfigError(f"key '{key}' is missing; {why}.")
        return self._values[key]

    def _value(self, key: str, default: object, fits: Callable[[Any], bool], wanted: str) -> Any:
        value = self._values.get(key, default)
        if not fits(value):
            raise ConfigError(f"'{key}' is {found_value(value)}; write {wanted}.")
        return value

    def number(self, key: str, default: int | float | None = None) -> float:
        """Return a number of a JSON file."""
        value = self._value(
            key,
            default,
            lambda v: isinstance(v, int | float) and not isinstance(v, bool),
            "a number",
        )
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"'{key}' is too large for a number.") from None

    def optional_number(self, key: str) -> float | None:
        """Return a number of a JSON file, None where it is not given."""
        return self.number(key) if self.has(key) else None

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a whole number of a JSON file."""
        value = self.number(key, default)
        if not value.is_integer():  # refuses NaN and infinity too
            raise ConfigError(f"'{key}' is {value!r}; write a whole number.")
        return int(value)

    def flag(self, key: str) -> bool:
        """Return a flag, 0 or 1; the reference takes any JSON boolean, also false, for 1."""
        value = self._value(key, 0, lambda v: isinstance(v, bool) or v in (0, 1), "0 or 1")
        if isinstance(value, bool):
            raise ConfigError(
                f"'{key}' is {found_value(value)}, which ASTRA-sim takes for 1; write 0 or 1."
            )
        return bool(value)

    def word(self, key: str, default: str | None, known: tuple[str, ...]) -> str:
        """Return one of a few words."""
        return self._value(key, default, known.__contains__, f"one of {', '.join(known)}")

    def text(self, key: str, default: str) -> str:
        """Return a text of a JSON file."""
        return self._value(key, default, lambda v: isinstance(v, str) and v != "", "a text")

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of words."""
        return tuple(self._value(key, [], _are_texts, "a list of names"))

    def column(self, key: str) -> list[str]:
        """Return a list of ``network.yml``, one text for each dimension."""
        value = self.required(key, "give one entry for each dimension, e.g. [ 8 ]")
        if not _are_texts(value):
            raise ConfigError(f"'{key}' is no list with one entry for each dimension; write one.")
        return value


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


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

_UNREAD = (
    *("boost-mode", "intra-dimension-scheduling", "inter-dimension-scheduling", "trace-enabled"),
    *("local-reduction-delay", "L", "o", "g", "G"),
)
"""Keys of ASTRA-sim's examples that change no tick there, with the features below switched off."""

_SHARED_BUS = "model-shared-bus"
"""A feature that is not modeled: only a value that switches it off is accepted."""

_CUSTOM = ("per-node-custom-implementation", *(f"{name}-custom" for name in _IMPLEMENTATIONS))
"""Keys that name traces of custom collectives, which are not modeled."""

_SYSTEM_KEYS = (
    *("scheduling-policy", "collective-optimization", "endpoint-delay", "preferred-dataset-splits"),
    *("active-chunks-per-dimension", "local-mem-bw", "peak-perf", "roofline-enabled"),
    *("replay-only", "storage-bw", "track-local-mem", "local-mem-trace-filename"),
    *(*_IMPLEMENTATIONS, *_UNREAD, _SHARED_BUS, *_CUSTOM),
)
_NETWORK_KEYS = ("topology", "npus_count", "bandwidth", "latency")
_MEMORY_KEYS = (
    *("memory-type", "remote-mem-latency", "remote-mem-bw", "num-nodes", "num-npus-per-node"),
)


@contextmanager
def _file(
    path: str | Path, parser: Callable[[str], Any], language: str, known: Collection[str]
) -> Iterator[Section]:
    """Yield the keys of a file; errors about them name it."""
    data = read_whole(path, MAX_CONFIG_BYTES, ConfigError)
    try:
        yield Section(_parsed(data, parser, language), known)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def read_system(path: str | Path) -> SystemConfig:
    """Read ``system.json``.

    Raises:
        ConfigError: If the file is missing or no JSON, a key is unknown, a value is out of bounds,
            or a key is missing for which the reference has no usable default.
    """
    with _file(path, parse_json, "JSON", _SYSTEM_KEYS) as section:
        _refuse_unsupported(section)
        section.required(
            "preferred-dataset-splits", "the reference crashes without it, write e.g. 4"
        )
        section.required(
            "collective-optimization", "the reference has no default; write 'localBWAware'"
        )
        lists: dict[str, Any] = {
            attribute: section.texts(key) for key, attribute in _IMPLEMENTATIONS.items()
        }
        found = SystemConfig(
            preferred_dataset_splits=section.integer("preferred-dataset-splits"),
            collective_optimization=section.word("collective-optimization", None, OPTIMIZATIONS),
            endpoint_delay_ns=(
                section.integer("endpoint-delay") if section.has("endpoint-delay") else None
            ),
            active_chunks_per_dimension=section.integer("active-chunks-per-dimension", 1),
            scheduling_policy=section.word("scheduling-policy", "LIFO", POLICIES),
            local_mem_bw_gb=section.optional_number("local-mem-bw"),
            peak_perf_tflops=section.optional_number("peak-perf"),
            roofline_enabled=section.flag("roofline-enabled"),
            replay_only=section.flag("replay-only"),
            storage_bw_gb=section.optional_number("storage-bw"),
            track_local_mem=section.flag("track-local-mem"),
            local_mem_trace=section.text("local-mem-trace-filename", "local_mem_trace"),
            **lists,
        )
        for key, attribute in _IMPLEMENTATIONS.items():
            for name in lists[attribute]:
                try:
                    parse_implementation(name)
                except ConfigError as error:
                    raise ConfigError(f"{key}: {error}") from None
    return found


def _refuse_unsupported(section: Section) -> None:
    """Refuse features that are not modeled, unless they are switched off."""
    if section.has(_SHARED_BUS) and section.required(_SHARED_BUS, "") != 0:
        raise ConfigError(
            f"'{_SHARED_BUS}' is not modeled; set it to 0, or run your own ASTRA-sim with "
            "--backend astra-sim."
        )
    for key in _CUSTOM:
        if section.has(key) and section.required(key, "") not in ([], ""):
            instead = key.removesuffix("-custom") if key.endswith("-custom") else "*-implementation"
            raise ConfigError(
                f"'{key}' names custom collectives, which are not modeled; name algorithms under "
                f"'{instead}', e.g. [\"ring\"], or run your own ASTRA-sim with "
                "--backend astra-sim."
            )


def read_network(path: str | Path) -> NetworkConfig:
    """Read ``network.yml``.

    Raises:
        ConfigError: If the file is missing or no YAML, a key is unknown or missing, the lists have
            different lengths, or a value is out of bounds.
    """
    with _file(path, load_yaml_texts, "YAML", _NETWORK_KEYS) as section:
        columns = [section.column(key) for key in _NETWORK_KEYS]
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
    with _file(path, parse_json, "JSON", _MEMORY_KEYS) as section:
        section.required("memory-type", "write e.g. 'NO_MEMORY_EXPANSION'")
        names = tuple(kind.value for kind in MemoryKind)
        kind = MemoryKind(section.word("memory-type", None, names))
        if kind is MemoryKind.NONE:
            return MemoryConfig()
        per_node = kind is MemoryKind.PER_NODE
        if per_node:
            section.required("num-npus-per-node", "PER_NODE needs the ranks that share a memory")
            section.required("num-nodes", "PER_NODE needs the number of memories")
        return MemoryConfig(
            kind,
            section.integer("remote-mem-latency"),
            section.number("remote-mem-bw"),
            section.integer("num-npus-per-node") if per_node else 1,
            section.integer("num-nodes") if per_node else None,
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
