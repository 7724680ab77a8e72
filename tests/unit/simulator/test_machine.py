from pathlib import Path

import pytest
from simulator_traces import all_reduce, comp, workload

import layerdag as ld
from layerdag.errors import UsageError
from layerdag.simulator import MemoryKind, Topology, small_cluster
from layerdag.simulator.compute import MeasuredCompute, ReferenceCompute

SYSTEM = """{"preferred-dataset-splits": 1, "collective-optimization": "localBWAware",
 "scheduling-policy": "LIFO", "all-reduce-implementation": ["ring"]}"""
NETWORK = "topology: [Ring]\nnpus_count: [2]\nbandwidth: [50.0]\nlatency: [500.0]\n"
MEMORY = '{"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 5, "remote-mem-bw": 7}'


def two_ranks() -> ld.Workload:
    nodes = [comp(0, 3), all_reduce(1, 3200, deps=(0,))]
    return workload(nodes, nodes)


def test_files_make_a_cluster(tmp_path: Path) -> None:
    for name, text in (("system.json", SYSTEM), ("network.yml", NETWORK), ("memory.json", MEMORY)):
        (tmp_path / name).write_text(text)
    files = {"system": tmp_path / "system.json", "network": tmp_path / "network.yml"}
    cluster = ld.Cluster.from_files(**files)
    assert cluster.network.dimensions[0].topology is Topology.RING
    assert cluster.num_ranks == 2
    assert cluster.memory.kind is MemoryKind.NONE
    assert ld.simulate(two_ranks(), cluster).makespan_ns > 3000
    kept = ld.Cluster.from_files(**files, memory=tmp_path / "memory.json")
    assert kept.memory.kind is MemoryKind.PER_NPU


def test_a_preset_gets_the_ranks_of_the_workload_and_its_own_compute_model() -> None:
    preset = ld.Cluster.preset("small")
    load = two_ranks()
    sized = preset.sized(2)
    expected = ld.simulate(load, sized, compute=MeasuredCompute())
    assert ld.simulate(load, preset).makespan_ns == expected.makespan_ns
    assert sized.network == small_cluster(2)[1]
    reference = ld.simulate(load, preset, compute="reference")
    same = ld.simulate(load, sized, compute=ReferenceCompute(sized.system))
    assert reference.makespan_ns == same.makespan_ns


def test_an_unknown_preset_is_refused_with_the_known_one() -> None:
    with pytest.raises(UsageError, match=r"no cluster preset 'smal'. Did you mean 'small'"):
        ld.Cluster.preset("smal")
