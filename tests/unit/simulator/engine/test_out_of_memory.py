"""Whichever allocation of the kernel fails, the run is refused and every block is given back."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
from simulator_traces import all_reduce, coll, comp, one_dimension, system, workload

from layerdag.errors import SimulationError
from layerdag.simulator import Cluster, MemoryConfig, RunOptions, SystemConfig, Topology
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.engine import Program, _event_loop as kernel, lower
from layerdag.simulator.engine._event_loop import Method
from layerdag.traces import CollectiveType

NATIVE = Path(__file__).resolve().parents[4] / "native" / "sim"
HEADER = """
#include <stdlib.h>
void *counted(void *old, size_t size, int zeroed);
void given_back(void *block);
#define malloc(size) counted(0, size, 0)
#define calloc(count, size) counted(0, (count) * (size), 1)
#define realloc(old, size) counted(old, size, 0)
#define free(block) given_back(block)
"""
COUNTER = """
#include <stdlib.h>
#include <string.h>
long allocations, held, fail_at;
void *counted(void *old, size_t size, int zeroed) {
    if (++allocations == fail_at) return 0;
    void *block = realloc(old, size);
    if (!old) held++;
    if (zeroed) memset(block, 0, size);
    return block;
}
void given_back(void *block) {
    held -= block != 0;
    free(block);
}
"""


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Return the kernel built with counted allocations."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to build the kernel with counted allocations")
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "counted.h").write_text(HEADER)
    (folder / "counter.c").write_text(COUNTER)
    sources = [str(path) for path in sorted(NATIVE.glob("*.c"))]
    common = [compiler, "-std=c11", "-fPIC", "-c", "-O0"]
    subprocess.run(
        [*common, "-include", str(folder / "counted.h"), *sources], cwd=folder, check=True
    )
    subprocess.run([*common, "counter.c"], cwd=folder, check=True)
    objects = sorted(path.name for path in folder.glob("*.o"))
    subprocess.run([compiler, "-shared", "-o", "kernel.so", *objects], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


def program(described: SystemConfig) -> Program:
    """Return four ranks on a switch that compute, all-reduce and scatter."""
    scatter = coll(2, CollectiveType.REDUCE_SCATTER, 4000, (1,))
    nodes = [comp(0, 1), all_reduce(1, 4000, (0,)), scatter]
    cluster = Cluster(one_dimension(Topology.SWITCH, 4), described, MemoryConfig(), RunOptions())
    return lower(workload(*[nodes] * 4), cluster, MeasuredCompute())


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling", "inNetwork"])
def test_nothing_is_lost_whichever_allocation_fails(counting, monkeypatch, method, algorithm):
    monkeypatch.setattr(kernel, "library", lambda: counting)
    allocations, held, fail_at = (
        ctypes.c_long.in_dll(counting, name) for name in ("allocations", "held", "fail_at")
    )
    job = program(system(algorithm, reduce_scatter=(algorithm,)))
    allocations.value = held.value = fail_at.value = 0
    kernel.run_with(job, method)
    total = allocations.value
    assert total > 10
    assert held.value == 0
    for at in range(1, total + 1):
        allocations.value, fail_at.value = 0, at
        with pytest.raises(SimulationError, match="ran out of memory"):
            kernel.run_with(job, method)
        assert held.value == 0, f"allocation {at} of {total}"
