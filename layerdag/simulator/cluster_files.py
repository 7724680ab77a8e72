"""ASTRA-sim's configuration files as dataclasses: every key known, unknown keys refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from layerdag.errors import ConfigError
from layerdag.reading import read_whole
from layerdag.simulator.bounded_yaml import MAX_CONFIG_BYTES, load_yaml
from layerdag.simulator.cluster import (
    Dimension,
    MemoryConfig,
    MemoryKind,
    NetworkConfig,
    SystemConfig,
    Topology,
)
from layerdag.simulator.spelling import nearest

_IMPLEMENTATIONS = {
    "all-reduce-implementation": "all_reduce",
    "all-gather-implementation": "all_gather",
    "reduce-scatter-implementation": "reduce_scatter",
    "all-to-all-implementation": "all_to_all",
}

_UNREAD = frozenset(
    {
        "boost-mode",
        "intra-dimension-scheduling",
        "inter-dimension-scheduling",
        "trace-enabled",
        "local-mem-trace-filename",
        "local-reduction-delay",
        "L",
        "o",
        "g",
        "G",
    }
)
"""Keys of ASTRA-sim's examples that change no tick there, with the features below switched off."""

_NOT_MODELLED = frozenset(
    {"model-shared-bus", "track-local-mem", "per-node-custom-implementation"}
    | {f"{name}-custom" for name in _IMPLEMENTATIONS}
)
"""Keys of features that are not modelled: only a value that switches them off is accepted."""

_SYSTEM_KEYS = frozenset(
    {
        "scheduling-policy",
        "collective-optimization",
        "endpoint-delay",
        "active-chunks-per-dimension",
        "preferred-dataset-splits",
        "local-mem-bw",
        "peak-perf",
        "roofline-enabled",
        "replay-only",
        *_IMPLEMENTATIONS,
        "broadcast-implementation",
        *_UNREAD,
        *_NOT_MODELLED,
    }
)
_NETWORK_KEYS = frozenset({"topology", "npus_count", "bandwidth", "latency"})
_MEMORY_KEYS = frozenset(
    {"memory-type", "remote-mem-latency", "remote-mem-bw", "num-nodes", "num-npus-per-node"}
)


class _Section:
    """The keys of one file with their values; every complaint names file and key."""

    def __init__(self, path: Path, values: Any, known: frozenset[str]) -> None:
        if not isinstance(values, dict):
            raise ConfigError(f"{path}: holds no mapping of keys to values; write one.")
        self.path = path
        self._values: Mapping[str, Any] = values
        for key in values:
            if key not in known:
                near = nearest(key, known)
                raise ConfigError(f"{path}: unknown key '{key}'; did you mean '{near}'?")

    def has(self, key: str) -> bool:
        return key in self._values

    def required(self, key: str, why: str) -> Any:
        if key not in self._values:
            raise ConfigError(f"{self.path}: key '{key}' is missing; {why}.")
        return self._values[key]

    def number(self, key: str, default: int | float | None = None) -> float:
        value = self._values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{self.path}: '{key}' is {value!r}; write a number.")
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"{self.path}: '{key}' is too large for a number.") from None

    def optional_number(self, key: str) -> float | None:
        return self.number(key) if self.has(key) else None

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if not value.is_integer():
            raise ConfigError(f"{self.path}: '{key}' is {value!r}; write a whole number.")
        return int(value)

    def flag(self, key: str) -> bool:
        value = self._values.get(key, 0)
        if value not in (0, 1):
            raise ConfigError(f"{self.path}: '{key}' is {value!r}; write 0 or 1.")
        return bool(value)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{self.path}: '{key}' is {value!r}; write a list of names.")
        return tuple(value)


def read_system(path: str | Path) -> SystemConfig:
    """Read ``system.json``.

    Raises:
        ConfigError: If the file is missing or no JSON, a key is unknown, a value is out of bounds,
            or a key is missing for which the reference has no usable default.
    """
    path = Path(path)
    section = _Section(path, _parse(path, json.loads, "JSON"), _SYSTEM_KEYS)
    for key in sorted(_NOT_MODELLED):
        if section.has(key) and section.required(key, "") not in (0, False, [], ""):
            raise ConfigError(f"{path}: '{key}' is not modelled; remove the key or set it to 0.")
    section.required("preferred-dataset-splits", "the reference crashes without it, write e.g. 4")
    optimization = section.required(
        "collective-optimization", "the reference has no default; write 'localBWAware'"
    )
    return _within(
        path,
        lambda: SystemConfig(
            preferred_dataset_splits=section.integer("preferred-dataset-splits"),
            collective_optimization=optimization,
            endpoint_delay_ns=section.integer("endpoint-delay", 10),
            active_chunks_per_dimension=section.integer("active-chunks-per-dimension", 1),
            scheduling_policy=section.required("scheduling-policy", "")
            if section.has("scheduling-policy")
            else "LIFO",
            local_mem_bw_gb=section.optional_number("local-mem-bw"),
            peak_perf_tflops=section.optional_number("peak-perf"),
            roofline_enabled=section.flag("roofline-enabled"),
            replay_only=section.flag("replay-only"),
            all_reduce=section.texts("all-reduce-implementation"),
            all_gather=section.texts("all-gather-implementation"),
            reduce_scatter=section.texts("reduce-scatter-implementation"),
            all_to_all=section.texts("all-to-all-implementation"),
            broadcast=section.texts("broadcast-implementation"),
        ),
    )


def read_network(path: str | Path) -> NetworkConfig:
    """Read ``network.yml``.

    Raises:
        ConfigError: If the file is missing or no YAML, a key is unknown or missing, the lists have
            different lengths, or a value is out of bounds.
    """
    path = Path(path)
    section = _Section(path, _parse(path, load_yaml, "YAML"), _NETWORK_KEYS)
    columns = [
        section.required(key, "give one entry a dimension, e.g. [ 8 ]")
        for key in ("topology", "npus_count", "bandwidth", "latency")
    ]
    if not all(isinstance(column, list) for column in columns):
        raise ConfigError(f"{path}: every key needs a list with one entry a dimension.")
    if len({len(column) for column in columns}) != 1:
        sizes = ", ".join(str(len(column)) for column in columns)
        raise ConfigError(
            f"{path}: topology, npus_count, bandwidth and latency have {sizes} entries; "
            "give one a dimension in each."
        )
    dimensions = [_dimension(path, row) for row in zip(*columns, strict=True)]
    return _within(path, lambda: NetworkConfig(tuple(dimensions)))


def _dimension(path: Path, row: tuple[Any, ...]) -> Dimension:
    """Return one dimension from its topology name and three numbers."""
    name, npus, bandwidth, latency = row
    if name not in {topology.value for topology in Topology}:
        names = [topology.value for topology in Topology]
        near = nearest(name, names)
        raise ConfigError(f"{path}: unknown topology '{name}'; did you mean '{near}'?")
    if isinstance(npus, bool) or not isinstance(npus, int):
        raise ConfigError(f"{path}: npus_count holds {npus!r}; write whole numbers.")
    for value in (bandwidth, latency):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{path}: found {value!r} where a number is needed.")
    return _within(path, lambda: Dimension(Topology(name), npus, float(bandwidth), float(latency)))


def read_memory(path: str | Path) -> MemoryConfig:
    """Read the remote memory's JSON file.

    Raises:
        ConfigError: If the file is missing or no JSON, a key is unknown or missing, or a value is
            out of bounds.
    """
    path = Path(path)
    section = _Section(path, _parse(path, json.loads, "JSON"), _MEMORY_KEYS)
    name = section.required("memory-type", "write e.g. 'NO_MEMORY_EXPANSION'")
    if name not in {kind.value for kind in MemoryKind}:
        names = [kind.value for kind in MemoryKind]
        near = nearest(name, names)
        raise ConfigError(f"{path}: unknown memory-type '{name}'; did you mean '{near}'?")
    kind = MemoryKind(name)
    if kind is MemoryKind.NONE:
        return MemoryConfig()
    if kind is MemoryKind.PER_NODE:
        section.required("num-npus-per-node", "PER_NODE needs the ranks that share a memory")
    return _within(
        path,
        lambda: MemoryConfig(
            kind,
            section.integer("remote-mem-latency"),
            section.number("remote-mem-bw"),
            section.integer("num-npus-per-node", 1),
        ),
    )


def _parse(path: Path, parser: Any, language: str) -> Any:
    """Return the parsed content of ``path``."""
    try:
        return parser(read_whole(path, MAX_CONFIG_BYTES, ConfigError).decode())
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"{path}: is no {language} ({first}); mend or replace it.") from None


def _within(path: Path, build: Any) -> Any:
    """Return what ``build`` makes; its complaints get the file's name in front."""
    try:
        return build()
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
