"""Operators' times as trees in a folder: what they learn, and that a folder is not trusted."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from simulator_traces import comp, workload

from layerdag.errors import ConfigError
from layerdag.simulator.compute import OperatorTrees, measured_rows
from layerdag.surrogates import save_surrogate
from layerdag.traces import Trace


def measured(num: int = 200) -> Trace:
    """Return nodes whose time depends on the operator (1 or 10 us) and on the operations."""
    nodes = [
        dataclasses.replace(
            comp(
                i,
                9,
                duration_ns=(10_000 if i % 2 else 1000) * (1 + i % 4 // 2),
                num_ops=10 ** (i % 4 // 2 * 3),
                tensor_size=8,
            ),
            name="aten::mm" if i % 2 else "aten::add",
        )
        for i in range(num)
    ]
    return workload(nodes).traces[0]


@pytest.fixture(scope="module")
def trees() -> OperatorTrees:
    return OperatorTrees.fit([measured()])


@pytest.fixture
def folder(trees: OperatorTrees, tmp_path: Path) -> Path:
    save_surrogate(trees, tmp_path / "o")
    return tmp_path / "o"


def test_the_operator_and_its_costs_decide(trees: OperatorTrees) -> None:
    found = trees.microseconds(measured(), np.arange(4))
    np.testing.assert_allclose(found, [1.0, 10.0, 2.0, 20.0], rtol=0.1)
    assert trees.microseconds(measured(), np.arange(0)).shape == (0,)


def test_an_unknown_operator_has_the_typical_time(trees: OperatorTrees) -> None:
    other = workload([dataclasses.replace(comp(0, 5, num_ops=1), name="aten::sin")]).traces[0]
    (found,) = trees.microseconds(other, np.arange(1))
    assert 0.9 < found < 21


def test_arrays_predict_what_scikit_learn_predicts(trees: OperatorTrees) -> None:
    from sklearn.ensemble import GradientBoostingRegressor

    from layerdag.simulator.compute.learned import _operator_trees as ours

    trace = measured()
    rows = measured_rows(trace)
    names = [trace.names()[row] for row in rows.tolist()]
    features_SF = ours._features(names, ours._costs(trace, rows), trees.typical)
    log_S = np.log(trees.microseconds(trace, rows))
    theirs = GradientBoostingRegressor(
        loss="huber", n_estimators=150, max_depth=6, subsample=0.5, random_state=0
    )
    order = np.random.default_rng(0).permutation(len(rows))
    theirs.fit(features_SF[order], log_S[order])
    np.testing.assert_allclose(theirs.predict(features_SF), log_S, atol=0.05)


def test_one_interrupted_operator_does_not_count() -> None:
    trace = measured()
    late = workload([dataclasses.replace(comp(0, 9, duration_ns=10**9), name="aten::add")])
    found = OperatorTrees.fit([trace, late.traces[0]]).microseconds(trace, np.arange(1))
    assert found[0] < 2


def test_too_few_measured_operators_are_refused() -> None:
    with pytest.raises(ConfigError, match="19 compute nodes state a duration; at least 20"):
        OperatorTrees.fit([measured(19)])
    untimed = workload([comp(i, 0) for i in range(30)]).traces[0]
    with pytest.raises(ConfigError, match="0 compute nodes"):
        OperatorTrees.fit([untimed])


def test_they_come_back_from_their_folder(trees: OperatorTrees, folder: Path) -> None:
    back = OperatorTrees.load(folder)
    trace, rows = measured(), np.arange(20)
    np.testing.assert_array_equal(back.microseconds(trace, rows), trees.microseconds(trace, rows))


def changed(array: np.ndarray, value: int) -> np.ndarray:
    array = array.copy()
    array[0, 0] = value
    return array


@pytest.mark.parametrize(
    ("name", "value"), [("left", 10**6), ("right", -1), ("feature", 4), ("feature", -1)]
)
def test_trees_from_outside_lead_nowhere_else(folder: Path, name: str, value: int) -> None:
    arrays = load_file(folder / "weights.safetensors")
    save_file({**arrays, name: changed(arrays[name], value)}, folder / "weights.safetensors")
    with pytest.raises(ConfigError, match=f"damaged.*'{name}' is out of bounds"):
        OperatorTrees.load(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config": {}}, "damaged"),
        ({"config": {"typical": {}, "start": 0.0, "depth": 1}}, "missing or not finite"),
        ({"config": {"typical": {"": 1.0}, "start": 0.0, "depth": 10**9}}, "depth"),
        ({"config": {"typical": {"": 1.0}, "start": float("inf"), "depth": 1}}, "not finite"),
        ({"config": {"typical": [], "start": 0.0, "depth": 1}}, "damaged"),
        ({"family": "boosting"}, "a number of a whole graph, not the times of operators"),
    ],
)
def test_a_folder_from_outside_is_checked(folder: Path, changes: dict, words: str) -> None:
    facts = json.loads((folder / "surrogate.json").read_text())
    (folder / "surrogate.json").write_text(json.dumps({**facts, **changes}))
    with pytest.raises(ConfigError, match=words):
        OperatorTrees.load(folder)


def test_files_that_are_missing_or_no_json_are_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file; write it with 'layerdag surr"):
        OperatorTrees.load(tmp_path / "none")
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-20])
    with pytest.raises(ConfigError, match="damaged"):
        OperatorTrees.load(folder)
    (folder / "surrogate.json").write_text("[")
    with pytest.raises(ConfigError, match="damaged"):
        OperatorTrees.load(folder)
    (folder / "surrogate.json").write_text("[1]")
    with pytest.raises(ConfigError, match="damaged"):
        OperatorTrees.load(folder)
