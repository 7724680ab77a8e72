"""Machines that are known are found again from the steps they take."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from simulator_traces import all_reduce, comp, workload

from layerdag.errors import ConfigError, TraceError
from layerdag.hardware.devices import DEVICES
from layerdag.simulator.calibration import (
    CalibratedMachine,
    DeviceCosts,
    FittedLink,
    FittedOperatorCosts,
)
from layerdag.simulator.calibration_fit import MeasuredRun, calibrate, read_runs_of
from layerdag.simulator.run import simulate
from layerdag.traces.builder import NodeSpec
from layerdag.traces.chakra.corpus import embedded_corpus
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.trace import Workload

COSTS = FittedOperatorCosts(
    {"mm": (5000.0, 1e-3, 0.02), "add": (2000.0, 0.0, 0.1)}, (3000.0, 1e-3, 0.05)
)
LINK = FittedLink(latency_ns=40_000.0, bytes_per_s=0.5e9)


def named(node: NodeSpec, name: str) -> NodeSpec:
    return dataclasses.replace(node, name=name)


def job(seed: int, ranks: int) -> Workload:
    """Return a job of random operators in a chain, with all-reduces where there are more ranks."""
    rng = np.random.default_rng(seed)
    nodes: list[NodeSpec] = []
    for id in range(int(rng.integers(8, 40))):
        deps = (id - 1,) if id else ()
        if ranks > 1 and id % 5 == 4:
            nodes.append(all_reduce(id, int(rng.choice([1_000, 100_000])), deps))
            continue
        costs = {
            "num_ops": int(rng.integers(10**4, 10**7)),
            "tensor_size": int(rng.integers(10**3, 10**6)),
        }
        name = str(rng.choice(["mm", "add"]))
        nodes.append(named(comp(id, 0, deps, **costs), name))
    return workload(*[nodes] * ranks)


def measured(
    machine: CalibratedMachine, count: int, ranks: int, first: int = 0
) -> list[MeasuredRun]:
    """Return runs whose measured time is what ``machine`` takes, within 2 %."""
    rng = np.random.default_rng(1)
    jobs = [job(first + seed, ranks) for seed in range(count)]
    return [
        MeasuredRun(made, simulate(made, machine).makespan_s * float(rng.uniform(0.98, 1.02)))
        for made in jobs
    ]


def test_rates_of_operators_and_the_link_are_found_from_whole_steps():
    truth = CalibratedMachine(COSTS, LINK)
    found = calibrate([*measured(truth, 40, 1), *measured(truth, 12, 2, first=100)])
    assert found.link is not None
    assert found.link.latency_ns == pytest.approx(LINK.latency_ns, rel=0.1)
    assert found.link.bytes_per_s == pytest.approx(LINK.bytes_per_s, rel=0.1)
    for seed in range(200, 210):
        unseen = job(seed, 4)
        wanted = simulate(unseen, truth).makespan_s
        assert simulate(unseen, found).makespan_s == pytest.approx(wanted, rel=0.05)


def test_one_run_tells_the_efficiency_of_a_device():
    link = FittedLink(latency_ns=100.0, bytes_per_s=450e9)
    truth = CalibratedMachine(DeviceCosts(DEVICES["h100"], 0.4), link)
    nodes = [comp(id, 0, num_ops=10**12, tensor_size=10**9) for id in range(3)]
    nodes.append(all_reduce(3, 10**8, (0, 1, 2)))
    made = workload(nodes, nodes)
    run = MeasuredRun(made, simulate(made, truth).makespan_s)
    found = calibrate([run], device=DEVICES["h100"], link=link)
    assert isinstance(found.costs, DeviceCosts)
    assert found.costs.efficiency == pytest.approx(0.4, rel=1e-3)
    assert found.together is None


def test_spreads_are_those_of_left_out_runs_by_one_and_several_ranks():
    truth = CalibratedMachine(COSTS, LINK)
    found = calibrate([*measured(truth, 30, 1), *measured(truth, 12, 2, first=100)])
    assert found.alone is not None
    assert found.together is not None
    assert (found.alone.runs, found.together.runs) == (30, 12)
    assert found.together.most_ranks == 2
    assert 0.9 < found.alone.low < 1 < found.alone.high < 1.1
    assert found.alone.error < 0.05


def test_a_disturbed_run_moves_little():
    truth = CalibratedMachine(COSTS)
    runs = measured(truth, 40, 1)
    runs[3] = MeasuredRun(runs[3].workload, 20 * runs[3].seconds)
    found = calibrate(runs)
    unseen = job(300, 1)
    assert simulate(unseen, found).makespan_s == pytest.approx(
        simulate(unseen, truth).makespan_s, rel=0.1
    )


def test_operators_that_few_runs_had_take_the_common_rates():
    runs = measured(CalibratedMachine(COSTS), 20, 1)
    found = calibrate(runs)
    nodes = [named(comp(0, 0, num_ops=10**6, tensor_size=10**5), "never seen")]
    made = workload(nodes)
    assert isinstance(found.costs, FittedOperatorCosts)
    assert set(found.costs.rates) == {"mm", "add"}
    call, operation, byte = found.costs.other
    wanted = call + operation * 10**6 + byte * 10**5
    result = simulate(made, found)
    assert result.makespan_ns == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize(
    ("ranks", "device", "message"),
    [
        ((), None, "no measured run"),
        ((1, 1), None, "measured runs of one rank: 2"),
        ((2,), "h100", "device and link cannot be told apart"),
    ],
)
def test_too_little_is_refused(ranks, device, message):
    runs = [MeasuredRun(job(seed, count), 0.01) for seed, count in enumerate(ranks)]
    with pytest.raises(ConfigError, match=message):
        calibrate(runs, device=DEVICES[device] if device else None)


def test_a_time_must_be_positive():
    with pytest.raises(ConfigError, match=r"run 'a' took 0\.0 s"):
        MeasuredRun(job(0, 1), 0.0, "a")


NODES = [comp(0, 1, num_ops=10)]


def table(folder: Path, *rows: str, header: str = "workload,seconds") -> Path:
    (folder / "runs.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder / "runs.csv"


def test_repeats_of_a_workload_count_once_with_the_least_time(tmp_path):
    write_workload(workload(NODES), tmp_path / "a")
    write_workload(workload(NODES, NODES), tmp_path / "b")
    path = table(tmp_path, "a,0.5", "b,2", "a,0.25")
    runs = read_runs_of(path)
    assert [(run.name, run.seconds, run.num_ranks) for run in runs] == [("a", 0.25, 1), ("b", 2, 2)]
    assert [run.name for run in read_runs_of(path, ranks=(2,))] == ["b"]


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        ("workload,time", "a,1", "first line must name the columns, among them 'seconds'"),
        ("", "", "Found are none"),
        ("workload,seconds", "a,fast", "line 2 states no number"),
        ("workload,seconds", "a,-1", "line 2 states no number of seconds"),
        ("workload,seconds", "", "holds no run"),
    ],
)
def test_a_damaged_table_is_refused(header, row, message, tmp_path):
    write_workload(workload(NODES), tmp_path / "a")
    with pytest.raises(ConfigError, match=message):
        read_runs_of(table(tmp_path, row, header=header))


def test_missing_traces_and_families_of_a_table_are_refused(tmp_path):
    path = table(tmp_path, "absent,1")
    with pytest.raises(TraceError):
        read_runs_of(path)
    with pytest.raises(ConfigError, match="a table has none"):
        read_runs_of(path, families=("mlp",))
    with pytest.raises(ConfigError, match=r"has no index\.jsonl"):
        read_runs_of(tmp_path)


def test_runs_of_a_corpus_are_chosen_by_family_and_ranks():
    runs = read_runs_of(embedded_corpus(), families=("dlrm",), ranks=(4,))
    assert len(runs) == 21
    assert {run.num_ranks for run in runs} == {4}
    assert all("_dlrm_" in run.name for run in runs)
