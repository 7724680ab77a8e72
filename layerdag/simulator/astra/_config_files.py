"""ASTRA-sim's configuration files as dataclasses: every key known, unknown keys refused."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from layerdag._runtime import MAX_CONFIG_BYTES, load_yaml_texts, read_whole
from layerdag.errors import ConfigError
from layerdag.simulator import (
    OPTIMIZATIONS,
    POLICIES,
    Dimension,
    MemoryConfig,
    MemoryKind,
    NetworkConfig,
    SystemConfig,
    Topology,
)
from layerdag.simulator.astra._sections import Section, yaml_integer, yaml_number

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

_SWITCHED_OFF = ("model-shared-bus", "track-local-mem")
"""Features that are not modeled: only a value that switches them off is accepted."""

_CUSTOM = ("per-node-custom-implementation", *(f"{name}-custom" for name in _IMPLEMENTATIONS))
"""Keys that name traces of custom collectives, which are not modeled."""

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
        *_SWITCHED_OFF,
        *_CUSTOM,
    }
)
_NETWORK_KEYS = frozenset({"topology", "npus_count", "bandwidth", "latency"})
_MEMORY_KEYS = frozenset(
    {"memory-type", "remote-mem-latency", "remote-mem-bw", "num-nodes", "num-npus-per-node"}
)


@contextmanager
def _named(path: str | Path) -> Iterator[None]:
    """Put the file's name in front of a complaint about what it holds."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def read_system(path: str | Path) -> SystemConfig:
    """Read ``system.json``.

    Raises:
        ConfigError: If the file is missing or no JSON, a key is unknown, a value is out of bounds,
            or a key is missing for which the reference has no usable default.
    """
    data = read_whole(path, MAX_CONFIG_BYTES, ConfigError)
    with _named(path):
        return _system(Section(_parsed(data, json.loads, "JSON"), _SYSTEM_KEYS))


def _system(section: Section) -> SystemConfig:
    """Return what the keys of ``system.json`` describe."""
    _refuse_unsupported(section)
    section.required("preferred-dataset-splits", "the reference crashes without it, write e.g. 4")
    section.required(
        "collective-optimization", "the reference has no default; write 'localBWAware'"
    )
    return SystemConfig(
        preferred_dataset_splits=section.integer("preferred-dataset-splits"),
        collective_optimization=section.word("collective-optimization", None, OPTIMIZATIONS),
        endpoint_delay_ns=section.optional_integer("endpoint-delay"),
        active_chunks_per_dimension=section.integer("active-chunks-per-dimension", 1),
        scheduling_policy=section.word("scheduling-policy", "LIFO", POLICIES),
        local_mem_bw_gb=section.optional_number("local-mem-bw"),
        peak_perf_tflops=section.optional_number("peak-perf"),
        roofline_enabled=section.flag("roofline-enabled"),
        replay_only=section.flag("replay-only"),
        all_reduce=section.texts("all-reduce-implementation"),
        all_gather=section.texts("all-gather-implementation"),
        reduce_scatter=section.texts("reduce-scatter-implementation"),
        all_to_all=section.texts("all-to-all-implementation"),
        broadcast=section.texts("broadcast-implementation"),
    )


def _refuse_unsupported(section: Section) -> None:
    """Refuse features that are not modeled, unless they are switched off."""
    shared = section.has("model-shared-bus") and section.required("model-shared-bus", "") != 0
    for key, on in (
        ("model-shared-bus", shared),
        ("track-local-mem", section.flag("track-local-mem")),
    ):
        if on:
            raise ConfigError(
                f"'{key}' is not modeled; set it to 0, or run your own ASTRA-sim with "
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
    data = read_whole(path, MAX_CONFIG_BYTES, ConfigError)
    with _named(path):
        return _network(Section(_parsed(data, load_yaml_texts, "YAML"), _NETWORK_KEYS))


def _network(section: Section) -> NetworkConfig:
    """Return what the keys of ``network.yml`` describe."""
    columns = [section.column(key) for key in ("topology", "npus_count", "bandwidth", "latency")]
    if len({len(column) for column in columns}) != 1:
        sizes = ", ".join(str(len(column)) for column in columns)
        raise ConfigError(
            f"topology, npus_count, bandwidth and latency have {sizes} entries; "
            "give one for each dimension."
        )
    return NetworkConfig(tuple(_dimension(*row) for row in zip(*columns, strict=True)))


def _dimension(name: str, npus: str, bandwidth: str, latency: str) -> Dimension:
    """Return one dimension from the texts of the file."""
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
    data = read_whole(path, MAX_CONFIG_BYTES, ConfigError)
    with _named(path):
        return _memory(Section(_parsed(data, json.loads, "JSON"), _MEMORY_KEYS))


def _memory(section: Section) -> MemoryConfig:
    """Return what the keys of the remote memory's file describe."""
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
