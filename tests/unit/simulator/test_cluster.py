"""Configuration files: every key known, unknown ones refused, defaults as in the reference."""

import json
import re
from pathlib import Path

import pytest
from simulator_traces import all_reduce, comp, small_cluster, workload

import layerdag as ld
from layerdag.errors import ConfigError, UsageError
from layerdag.simulator.cluster import (
    read_memory,
    read_network,
    read_system,
    yaml_integer,
    yaml_number,
)
from layerdag.simulator.compute import MeasuredCompute, ReferenceCompute
from layerdag.simulator.config import Dimension, MemoryConfig, MemoryKind, Topology

SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 5,
    "active-chunks-per-dimension": 2,
    "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring", "direct3"],
    "collective-optimization": "baseline",
    "local-mem-bw": 1600,
    "boost-mode": 0,
    "roofline-enabled": 1,
    "peak-perf": 900,
}
NETWORK = """\
topology: [ Ring, Switch ]
npus_count: [ 4, 2 ]
bandwidth: [ 50, 25.5 ]
latency: [ 0, 9.5 ]
"""


def written(folder: Path, content: object) -> Path:
    path = folder / "config"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def without(key: str) -> dict[str, object]:
    return {name: value for name, value in SYSTEM.items() if name != key}


def test_system_is_read_with_its_values(tmp_path):
    system = read_system(written(tmp_path, SYSTEM))
    assert system.endpoint_delay_ns == 5
    assert system.all_reduce == ("ring", "direct3")
    assert system.all_gather == ()
    assert system.roofline_enabled
    assert system.peak_perf_tflops == 900.0


def test_missing_keys_get_the_defaults_of_the_reference(tmp_path):
    system = read_system(
        written(tmp_path, {"preferred-dataset-splits": 1, "collective-optimization": "baseline"})
    )
    assert system.endpoint_delay_ns is None  # 10 ns, whatever the injection scale
    assert system.active_chunks_per_dimension == 1
    assert system.local_mem_bw_gb is None
    assert not system.roofline_enabled


@pytest.mark.parametrize("key", ["preferred-dataset-splits", "collective-optimization"])
def test_missing_keys_without_a_usable_default_are_named(tmp_path, key):
    with pytest.raises(ConfigError, match=f"'{key}' is missing"):
        read_system(written(tmp_path, without(key)))


def test_unknown_key_is_refused_with_the_nearest_one(tmp_path):
    with pytest.raises(ConfigError, match=r"'endpoint_delay'\. Did you mean 'endpoint-delay'"):
        read_system(written(tmp_path, {**SYSTEM, "endpoint_delay": 1}))
    with pytest.raises(ConfigError, match=r"'npu_count'\. Did you mean 'npus_count'"):
        read_network(written(tmp_path, NETWORK.replace("npus_count", "npu_count")))
    with pytest.raises(ConfigError, match=r"'memory_type'\. Did you mean 'memory-type'"):
        read_memory(written(tmp_path, {"memory_type": "MEMORY_POOL"}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("preferred-dataset-splits", 0),
        ("preferred-dataset-splits", "4"),
        ("preferred-dataset-splits", 1.5),
        ("endpoint-delay", -1),
        ("endpoint-delay", 10**400),
        ("active-chunks-per-dimension", 0),
        ("scheduling-policy", "RANDOM"),
        ("collective-optimization", "none"),
        ("local-mem-bw", -1),
        ("roofline-enabled", "yes"),
        ("roofline-enabled", False),
        ("replay-only", False),
        ("replay-only", True),
        ("track-local-mem", False),
        ("all-reduce-implementation", "ring"),
        ("model-shared-bus", 1),
        ("all-reduce-implementation-custom", ["ring.et"]),
        ("per-node-custom-implementation", ["ring.et"]),
    ],
)
def test_values_out_of_bounds_name_file_and_key(tmp_path, key, value):
    path = written(tmp_path, {**SYSTEM, key: value})
    with pytest.raises(ConfigError, match=key) as caught:
        read_system(path)
    assert str(caught.value).count(str(path)) == 1


def test_a_flag_that_is_a_boolean_says_what_the_reference_makes_of_it(tmp_path):
    with pytest.raises(ConfigError, match="'roofline-enabled' is false, which ASTRA-sim takes for"):
        read_system(written(tmp_path, {**SYSTEM, "roofline-enabled": False}))
    off = {**SYSTEM, "model-shared-bus": False, "roofline-enabled": 0.0}
    assert not read_system(written(tmp_path, off)).roofline_enabled


def test_custom_collectives_name_what_to_do_instead(tmp_path):
    key = "all-reduce-implementation-custom"
    with pytest.raises(ConfigError, match=r"under 'all-reduce-implementation', e\.g\. .*--backend"):
        read_system(written(tmp_path, {**SYSTEM, key: ["ring.et"]}))
    assert read_system(written(tmp_path, {**SYSTEM, key: []})).all_reduce == ("ring", "direct3")


def test_a_byte_order_mark_is_skipped(tmp_path):
    path = tmp_path / "config"
    path.write_text(json.dumps(SYSTEM), encoding="utf-8-sig")
    assert read_system(path).endpoint_delay_ns == 5
    path.write_text(NETWORK, encoding="utf-8-sig")
    assert read_network(path).num_npus == 8


def test_network_is_read_by_dimension(tmp_path):
    network = read_network(written(tmp_path, NETWORK))
    assert network.dimensions == (
        Dimension(Topology.RING, 4, 50.0, 0.0),
        Dimension(Topology.SWITCH, 2, 25.5, 9.5),
    )
    assert network.num_npus == 8


def test_bandwidth_counts_gigabytes_of_two_to_the_thirtieth():
    assert Dimension(Topology.RING, 2, 50.0).bytes_per_ns == 50 * 2**30 / 1e9


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Ring", "Rink", "'Rink'; write one of Ring, FullyConnected, Switch"),
        ("[ 4, 2 ]", "[ 4 ]", "2, 1, 2, 2 entries"),
        ("[ 4, 2 ]", "8", "list"),
        ("[ 4, 2 ]", "[ 4, 0 ]", "npus_count is 0"),
        ("[ 4, 2 ]", "[ 4, 2.5 ]", "npus_count holds '2.5', which is no whole number"),
        ("[ 50, 25.5 ]", "[ 50, 0 ]", "bandwidth"),
        ("[ 50, 25.5 ]", "[ 50, fast ]", "number"),
        ("[ 0, 9.5 ]", "[ 0, -1 ]", "latency"),
        ("topology: [ Ring, Switch ]\n", "", "'topology' is missing"),
        ("topology:", "topology: ]", "no YAML (line 1, column 11: "),
        ("latency: [", "latency: [ [", "no YAML (line 5, column 1: "),
        ("latency", "bandwidth", "key 'bandwidth' stands twice"),
    ],
)
def test_faulty_networks_are_explained(tmp_path, old, new, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        read_network(written(tmp_path, NETWORK.replace(old, new)))


def test_memory_kinds(tmp_path):
    assert read_memory(written(tmp_path, {"memory-type": "NO_MEMORY_EXPANSION"})) == MemoryConfig()
    pool = {"memory-type": "MEMORY_POOL", "remote-mem-latency": 3, "remote-mem-bw": 2}
    assert read_memory(written(tmp_path, pool)) == MemoryConfig(MemoryKind.POOL, 3, 2.0)
    with pytest.raises(ConfigError, match="remote-mem-bw"):
        read_memory(written(tmp_path, {**pool, "remote-mem-bw": 0}))
    with pytest.raises(ConfigError, match="'num-npus-per-node' is missing"):
        read_memory(written(tmp_path, {**pool, "memory-type": "PER_NODE_MEMORY_EXPANSION"}))
    per_node = {**pool, "memory-type": "PER_NODE_MEMORY_EXPANSION", "num-npus-per-node": 2}
    with pytest.raises(ConfigError, match="'num-nodes' is missing"):
        read_memory(written(tmp_path, per_node))
    found = read_memory(written(tmp_path, {**per_node, "num-nodes": 3}))
    assert found == MemoryConfig(MemoryKind.PER_NODE, 3, 2.0, npus_per_node=2, num_nodes=3)
    with pytest.raises(ConfigError, match="'CXL'; write one of NO_MEMORY_EXPANSION, PER_NODE_"):
        read_memory(written(tmp_path, {"memory-type": "CXL"}))


def test_missing_and_broken_files_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere.json: there is no such file"):
        read_system(tmp_path / "nowhere.json")
    with pytest.raises(ConfigError, match="is no JSON"):
        read_system(written(tmp_path, "{"))
    with pytest.raises(ConfigError, match="no mapping"):
        read_system(written(tmp_path, "[]"))


RING_OF_ANY = "topology: [ Ring ]\nnpus_count: [ {npus} ]\nbandwidth: [ {rate} ]\nlatency: [ 0 ]\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10.0),  # YAML 1.1 makes it octal, yaml-cpp does not
        ("1e3", 1000.0),
        ("4.0e2", 400.0),
        ("1e-3", 0.001),
        ("'50'", 50.0),
        ('"50.0"', 50.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("+7", 7.0),
    ],
)
def test_a_bandwidth_is_the_decimal_number_of_its_text(tmp_path, text, value):
    path = tmp_path / "network.yml"
    path.write_text(RING_OF_ANY.format(npus=4, rate=text))
    assert read_network(path).dimensions[0].bandwidth_gib == value


@pytest.mark.parametrize(
    "text", ["0x10", "5_0", "1:30", "fast", "1e", ".", "~", "true", "1,5", "' 5'", "\u0665", "nan"]
)
def test_what_yaml_cpp_cannot_convert_is_refused(text):
    with pytest.raises(ConfigError, match="is no decimal number"):
        yaml_number("bandwidth", text)


@pytest.mark.parametrize(
    ("text", "value"), [("8", 8), ("+8", 8), ("-2", -2), ("010", 8), ("0x10", 16), ("0", 0)]
)
def test_counts_follow_the_base_of_their_prefix(text, value):
    assert yaml_integer("npus_count", text) == value


@pytest.mark.parametrize("text", ["4.0", "1e3", "08", "0x", "4_0", "", "\u0664"])
def test_counts_that_are_no_integers_are_refused(text):
    with pytest.raises(ConfigError, match="is no whole number"):
        yaml_integer("npus_count", text)


RING_SYSTEM = """{"preferred-dataset-splits": 1, "collective-optimization": "localBWAware",
 "scheduling-policy": "LIFO", "all-reduce-implementation": ["ring"]}"""
RING_OF_TWO = "topology: [Ring]\nnpus_count: [2]\nbandwidth: [50.0]\nlatency: [500.0]\n"
MEMORY = '{"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 5, "remote-mem-bw": 7}'


def two_ranks() -> ld.Workload:
    nodes = [comp(0, 3), all_reduce(1, 3200, deps=(0,))]
    return workload(nodes, nodes)


def test_files_make_a_cluster(tmp_path):
    for name, text in (
        ("system.json", RING_SYSTEM),
        ("network.yml", RING_OF_TWO),
        ("memory.json", MEMORY),
    ):
        (tmp_path / name).write_text(text)
    files = {"system": tmp_path / "system.json", "network": tmp_path / "network.yml"}
    cluster = ld.Cluster.from_files(**files)
    assert cluster.network.dimensions[0].topology is Topology.RING
    assert cluster.num_ranks == 2
    assert cluster.memory.kind is MemoryKind.NONE
    assert ld.simulate(two_ranks(), cluster).makespan_ns > 3000
    kept = ld.Cluster.from_files(**files, memory=tmp_path / "memory.json")
    assert kept.memory.kind is MemoryKind.PER_NPU


def test_a_preset_gets_the_ranks_of_the_workload_and_its_own_compute_model():
    preset = ld.Cluster("small")
    load = two_ranks()
    sized = preset.with_ranks(2)
    expected = ld.simulate(load, sized, compute=MeasuredCompute())
    assert ld.simulate(load, preset).makespan_ns == expected.makespan_ns
    assert sized.network == small_cluster(2)[1]
    reference = ld.simulate(load, preset, compute="reference")
    same = ld.simulate(load, sized, compute=ReferenceCompute(sized.system))
    assert reference.makespan_ns == same.makespan_ns


def test_an_unknown_preset_is_refused_with_the_known_one():
    with pytest.raises(UsageError, match=r"no cluster preset 'smal'. Did you mean 'small'"):
        ld.Cluster("smal")
