"""A step of a recommendation model: tables of ranks, memory, figures, and both front doors."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_recommenders import TWO

import layerdag as ld
from layerdag.cli import main
from layerdag.errors import UsageError
from layerdag.traces import read_workload
from layerdag.workloads.recommendation import recommender_job


def _figures(**settings: Any) -> dict[str, Any]:
    return recommender_job(TWO, **{"batch": 24, **settings}).summary()


# ---- figures ----


def test_the_largest_table_goes_first_to_the_rank_with_the_fewest_rows() -> None:
    assert recommender_job(TWO).tables == ((0, 1),)
    assert recommender_job(TWO, data=2).tables == ((1,), (0,))


def test_as_many_ranks_as_tables_hold_one_table_each() -> None:
    tables = recommender_job("dlrm-v2", data=26, batch=26).tables
    assert sorted(map(len, tables)) == [1] * 26


def test_memory_by_hand() -> None:
    held = recommender_job(TWO, batch=6).memory(0)
    assert held.weights == (120 + 213) * 2
    assert held.gradients == 213 * 2  # those of rows are applied as they come
    assert held.optimizer == 213 * 12 + 30 * 4  # one number for each row
    assert held.activations == 6 * (3 + 8 + 12 + 2 + 12 + 6) * 2  # inputs of all layers
    assert (held.gathered, held.kv_cache) == (0, 0)
    assert held.total == 666 + 426 + 2676 + 516


def test_inference_holds_weights_and_the_widest_layer_at_work() -> None:
    held = recommender_job(TWO, batch=6, phase="inference").memory(0)
    assert (held.weights, held.gradients, held.optimizer) == (666, 0, 0)
    assert held.activations == 6 * (12 + 6) * 2


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 6])
def test_smaller_micro_batches_keep_less(micro_batches: int) -> None:
    held = recommender_job(TWO, batch=6, micro_batches=micro_batches).memory(0)
    assert held.activations * micro_batches == 516


def test_the_fullest_rank_is_the_one_with_most_rows() -> None:
    found = _figures(data=2)
    totals = [rank["total"] for rank in found["memory"]]
    assert found["peak_memory"] == max(totals) == totals[0]
    assert totals[0] - totals[1] == (20 - 10) * (4 * 2 + 4)  # a row's numbers and its state


def test_a_sample_passes_all_dense_layers_and_the_rows_that_it_looks_up() -> None:
    found = _figures()
    assert found["parameters"] == 120 + 213
    assert found["active_parameters"] == 213 + (1 + 3) * 4
    assert (found["model"], found["samples"], found["ranks"]) == ("two", 24, 1)


def test_only_the_optimizer_is_repeated_on_each_rank() -> None:
    whole, split = _figures(), _figures(data=2)
    assert split["flops"] == whole["flops"] + 12 * TWO.dense_parameters


def test_operations_grow_with_samples_and_weights_are_read_once() -> None:
    once, twice, thrice = (_figures(batch=24 * times) for times in (1, 2, 3))
    assert twice["matrix_flops"] == 2 * once["matrix_flops"]
    for what in ("flops", "bytes"):
        assert thrice[what] - twice[what] == twice[what] - once[what]
    assert twice["bytes"] < 2 * once["bytes"]


def test_a_micro_batch_has_one_sample_unless_told_otherwise() -> None:
    assert recommender_job(TWO, data=2, micro_batches=3).step.batch == 6


# ---- front doors ----


def test_the_traces_have_one_group_of_all_ranks() -> None:
    assert dict(ld.workload(TWO, data=2).groups) == {"1": (0, 1)}
    assert dict(ld.workload(TWO).groups) == {}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"dta": 2}, r"has no setting 'dta'\. Did you mean 'data'"),
        ({"causal": "half"}, "has no setting 'causal'"),
        ({"tokens": 2}, "has no setting 'tokens'"),
        ({"zero": 1}, "two: a recommendation model is split over data ranks only"),
        ({"phase": "prefill"}, "two: has no KV cache for prefill; the phases are training and inf"),
        ({"data": 3, "batch": 3}, "two: 2 tables, each whole on one rank, do not fill 3 data"),
        ({"data": 2, "micro_batches": 2, "batch": 6}, "6 samples cannot be split evenly over 4"),
    ],
)
def test_the_python_door_refuses_what_cannot_be(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        ld.workload(TWO, **settings)


def test_the_verb_writes_traces_and_counts_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["workload", "dlrm-v2", "--data", "2", "--batch", "64"]
    assert main([*words, "--out", str(tmp_path / "w")]) == 0
    told = capsys.readouterr().out
    assert "dlrm-v2: 26.15 B parameters on 2 ranks" in told
    assert "64 samples" in told
    assert "all_to_all:data" in told
    assert read_workload(tmp_path / "w").num_ranks == 2
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 64


def test_the_verb_refuses_a_split_that_the_model_does_not_have(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["workload", "dlrm-v2", "--tensor", "2", "--json"]) == 2
    assert "is split over data ranks only" in capsys.readouterr().err
    assert main(["workload", "dlrm-v2", "--sequence", "64", "--json"]) == 2
    assert "has no setting 'sequence'" in capsys.readouterr().err
