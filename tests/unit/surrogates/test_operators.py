import dataclasses
from pathlib import Path

import numpy as np
import pytest
from simulator_traces import comp, workload

from layerdag.errors import CheckpointError
from layerdag.simulator.compute import OperatorTrees
from layerdag.surrogates import (
    fit_operators,
    load_surrogate,
    operator_errors,
    save_surrogate,
)
from layerdag.traces import Trace


def trace(nanoseconds: int, count: int = 30) -> Trace:
    """Return operators that all take the same time."""
    nodes = [comp(i, 9, duration_ns=nanoseconds, num_ops=1, tensor_size=8) for i in range(count)]
    return workload([dataclasses.replace(node, name="aten::add") for node in nodes]).traces[0]


@pytest.fixture(scope="module")
def trees() -> OperatorTrees:
    """Return trees to which every operator takes 10 us."""
    return OperatorTrees.fit([trace(10_000)])


def test_errors_are_counted_over_all_operators_with_intervals_over_jobs(
    trees: OperatorTrees,
) -> None:
    jobs = [[trace(10_000)], [trace(11_900)], [trace(20_000)], [trace(10_500)]]
    found = operator_errors(trees, jobs)
    assert found is not None
    assert (found.jobs, found.operators) == (4, 120)
    within, interval = found.figures["within_10_percent"]
    assert within == pytest.approx(0.5)
    assert interval is not None
    assert interval.low < 0.5 < interval.high
    assert found.figures["within_25_percent"][0] == pytest.approx(0.75)
    assert found.figures["median_factor"][0] == pytest.approx(1.05, abs=0.01)


def test_the_median_factor_counts_too_long_and_too_short_alike(trees: OperatorTrees) -> None:
    found = operator_errors(trees, [[trace(5_000)], [trace(20_000)]])
    assert found is not None
    assert found.figures["median_factor"][0] == pytest.approx(2.0, rel=0.01)


def test_jobs_without_measured_operators_say_nothing(trees: OperatorTrees) -> None:
    assert operator_errors(trees, []) is None
    assert operator_errors(trees, [[workload([comp(0, 0)]).traces[0]]]) is None


def test_one_workload_can_be_fitted_on_but_has_no_test_part(repository: Path) -> None:
    trees, errors, jobs = fit_operators(repository / "data" / "examples" / "ddp_mlp")
    assert (errors, jobs) == (None, 1)
    assert np.isfinite(trees.start)


def test_a_folder_of_operators_is_no_surrogate_of_graphs(
    trees: OperatorTrees, tmp_path: Path
) -> None:
    save_surrogate(trees, tmp_path / "o")
    with pytest.raises(CheckpointError, match="--compute surrogate:"):
        load_surrogate(tmp_path / "o")
