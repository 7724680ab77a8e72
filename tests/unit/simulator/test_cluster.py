"""Bounds of everything that describes a cluster: the last value allowed and the first refused."""

import dataclasses
import math

import pytest
from simulator_traces import system

from layerdag.errors import ConfigError
from layerdag.simulator import (
    Congestion,
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

WORDS = {
    Topology: ["Ring", "FullyConnected", "Switch"],
    Congestion: ["unaware", "aware", "aware-multi"],
    MemoryKind: [
        "NO_MEMORY_EXPANSION", "PER_NODE_MEMORY_EXPANSION", "PER_NPU_MEMORY_EXPANSION",
        "MEMORY_POOL",
    ],
    UnsupportedCollectives: ["refuse", "replay"],
    MissingImplementations: ["refuse", "skip"],
    GroupCollectives: ["flat", "hierarchical"],
}  # fmt: skip
"""What files and flags call each choice: ASTRA-sim's words, and ours where it has none."""

LINK = Dimension(Topology.RING, 4, 50.0, 500.0)
REMOTE = MemoryConfig(MemoryKind.PER_NODE, 10, 1.0, 1, 1)

BOUNDS = [
    # What to change, its attribute, its key in the files, values allowed, values refused.
    (LINK, "npus", "npus_count", [1], [0, -1]),
    (LINK, "bandwidth_gib", "bandwidth", [1e-9, 1e9], [0.0, 9e-10, -1.0, math.inf, math.nan]),
    (LINK, "latency_ns", "latency", [0.0, 1e12], [-0.1, 1.1e12, math.nan]),
    (system(), "preferred_dataset_splits", "preferred-dataset-splits", [1, 10**6], [0, 10**6 + 1]),
    (
        system(),
        "active_chunks_per_dimension",
        "active-chunks-per-dimension",
        [1, 10**6],
        [0, 10**6 + 1],
    ),
    (system(), "endpoint_delay_ns", "endpoint-delay", [None, 0, 10**12], [-1, 10**12 + 1]),
    (system(), "scheduling_policy", "scheduling-policy", ["LIFO", "FIFO", "EXPLICIT"], ["fifo"]),
    (
        system(),
        "collective_optimization",
        "collective-optimization",
        ["baseline", "localBWAware"],
        ["Baseline"],
    ),
    (system(), "local_mem_bw_gb", "local-mem-bw", [None, 1e-3], [0.0, -1.0, math.inf, math.nan]),
    (system(), "peak_perf_tflops", "peak-perf", [None, 1e-3], [0.0, -1.0, math.inf, math.nan]),
    (REMOTE, "latency_ns", "remote-mem-latency", [0, 10**12], [-1, 10**12 + 1]),
    (REMOTE, "bandwidth_bytes_per_ns", "remote-mem-bw", [1e-3], [0.0, -1.0, math.inf, math.nan]),
    (REMOTE, "npus_per_node", "num-npus-per-node", [1, 8], [0]),
    (REMOTE, "num_nodes", "num-nodes", [None, 1], [0]),
    (RunOptions(), "queues_per_dimension", "num-queues-per-dim", [1, 1024], [0, 1025]),
    (RunOptions(), "comm_streams", "comm-streams", [1, 64], [0, 65]),
    (RunOptions(), "injection_scale", "injection-scale", [0.0, 9.0], [-0.1, math.inf, math.nan]),
]


@pytest.mark.parametrize("choices", WORDS)
def test_choices_have_the_words_of_files_and_flags(choices):
    assert [choice.value for choice in choices] == WORDS[choices]


@pytest.mark.parametrize(
    ("config", "name", "key", "value"),
    [(config, name, key, value) for config, name, key, fine, _ in BOUNDS for value in fine],
)
def test_the_limits_themselves_are_allowed(config, name, key, value):
    assert getattr(dataclasses.replace(config, **{name: value}), name) == value


@pytest.mark.parametrize(
    ("config", "name", "key", "value"),
    [(config, name, key, value) for config, name, key, _, wrong in BOUNDS for value in wrong],
)
def test_values_beyond_them_are_refused_with_key_and_value(config, name, key, value):
    with pytest.raises(ConfigError) as caught:
        dataclasses.replace(config, **{name: value})
    assert str(caught.value).startswith(f"{key} is {value!r}; it must be ")


def test_a_network_has_one_to_eight_dimensions_and_a_million_ranks():
    assert NetworkConfig((LINK,) * 8).num_npus == 4**8
    for count in (0, 9):
        with pytest.raises(ConfigError, match=f"topology is {count}; it must be 1 to 8 entries"):
            NetworkConfig((LINK,) * count)
    assert NetworkConfig.single(Topology.RING, 10**6).num_npus == 10**6
    sizes = [dataclasses.replace(LINK, npus=npus) for npus in (1000, 1001)]
    with pytest.raises(ConfigError, match="npus_count is 1001000; it must be at most 1e6 in all"):
        NetworkConfig(tuple(sizes))


def test_ranks_of_a_network_are_the_product_of_its_dimensions():
    sizes = (2, 3, 5)
    network = NetworkConfig(tuple(dataclasses.replace(LINK, npus=n) for n in sizes))
    assert network.num_npus == 30


def test_a_single_dimension_has_the_speed_it_is_given():
    [dimension] = NetworkConfig.single(Topology.SWITCH, 8, 25.0, 1000.0).dimensions
    assert dimension == Dimension(Topology.SWITCH, 8, 25.0, 1000.0)
    [dimension] = NetworkConfig.single(Topology.SWITCH, 8).dimensions
    assert (dimension.bandwidth_gib, dimension.latency_ns) == (50.0, 500.0)


@pytest.mark.parametrize("missing", ["local_mem_bw_gb", "peak_perf_tflops"])
def test_a_roofline_needs_both_rates(missing):
    rates = {"local_mem_bw_gb": 1.0, "peak_perf_tflops": 1.0}
    assert system(roofline_enabled=True, **rates).roofline_enabled
    with pytest.raises(ConfigError, match="given when roofline-enabled is 1"):
        system(roofline_enabled=True, **{**rates, missing: None})


@pytest.mark.parametrize(
    ("algorithm", "exchange"),
    [
        ("ring", "ring"),
        ("direct4", "direct4"),
        ("oneRing", "oneRing"),
        ("halvingDoubling", "direct"),
        ("doubleBinaryTree", "direct"),
    ],
)
def test_a_uniform_system_uses_one_algorithm_and_one_that_can_exchange(algorithm, exchange):
    made = SystemConfig.uniform(algorithm, 3)
    for names in (made.all_reduce, made.all_gather, made.reduce_scatter):
        assert names == (algorithm,) * 3
    assert made.all_to_all == (exchange,) * 3
    assert (made.preferred_dataset_splits, made.broadcast) == (1, ())
