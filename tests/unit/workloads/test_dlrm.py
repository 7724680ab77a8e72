"""A step of a recommendation model: tables of ranks, memory, figures, and both front doors."""

import dataclasses
import json
from typing import Any

import pytest
from small_recommenders import TWO
from written_programs import costs, messages, needs

import layerdag as ld
from layerdag.cli.main import main
from layerdag.errors import ConfigError, UsageError
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.run import simulate
from layerdag.traces.chakra.workload import read_workload
from layerdag.traces.trace import Trace
from layerdag.validation.checking import check_workload
from layerdag.workloads.dlrm import RECOMMENDERS, RecommenderShape, recommender_job


def _figures(**settings: Any) -> dict[str, Any]:
    return recommender_job(TWO, **{"batch": 24, **settings}).summary()


def test_the_largest_table_goes_first_to_the_rank_with_the_fewest_rows():
    assert recommender_job(TWO).tables == ((0, 1),)
    assert recommender_job(TWO, data=2).tables == ((1,), (0,))


def test_memory_by_hand():
    held = recommender_job(TWO, batch=6).memory(0)
    assert held.weights == (120 + 213) * 2
    assert held.gradients == 213 * 2  # those of rows are applied as they come
    assert held.optimizer == 213 * 12 + 30 * 4  # one number for each row
    assert held.activations == 6 * (3 + 8 + 12 + 2 + 12 + 6) * 2  # inputs of all layers
    assert (held.gathered, held.kv_cache) == (0, 0)
    assert held.total == 666 + 426 + 2676 + 516


def test_inference_holds_weights_and_the_widest_layer_at_work():
    held = recommender_job(TWO, batch=6, phase="inference").memory(0)
    assert (held.weights, held.gradients, held.optimizer) == (666, 0, 0)
    assert held.activations == 6 * (12 + 6) * 2


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 6])
def test_smaller_micro_batches_keep_less(micro_batches):
    held = recommender_job(TWO, batch=6, micro_batches=micro_batches).memory(0)
    assert held.activations * micro_batches == 516


def test_the_fullest_rank_is_the_one_with_most_rows():
    found = _figures(data=2)
    totals = [rank["total"] for rank in found["memory"]]
    assert found["peak_memory"] == max(totals) == totals[0]
    assert totals[0] - totals[1] == (20 - 10) * (4 * 2 + 4)  # a row's numbers and its state


def test_a_sample_passes_all_dense_layers_and_the_rows_that_it_looks_up():
    found = _figures()
    assert found["parameters"] == 120 + 213
    assert found["active_parameters"] == 213 + (1 + 3) * 4
    assert (found["model"], found["samples"], found["ranks"]) == ("two", 24, 1)


def test_only_the_optimizer_is_repeated_on_each_rank():
    whole, split = _figures(), _figures(data=2)
    assert split["flops"] == whole["flops"] + 12 * TWO.dense_parameters


def test_a_micro_batch_has_one_sample_unless_told_otherwise():
    assert recommender_job(TWO, data=2, micro_batches=3).step.batch == 6


def test_the_traces_have_one_group_of_all_ranks():
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
def test_the_python_door_refuses_what_cannot_be(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        ld.workload(TWO, **settings)


def test_the_verb_writes_traces_and_counts_samples(tmp_path, capsys):
    words = ["workload", "dlrm-v2", "--data", "2", "--batch", "64"]
    assert main([*words, "--out", str(tmp_path / "w")]) == 0
    told = capsys.readouterr().out
    assert "dlrm-v2: 26.15 B parameters on 2 ranks" in told
    assert "64 samples" in told
    assert "all_to_all:data" in told
    assert read_workload(tmp_path / "w").num_ranks == 2
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 64


def _program(rank: int = 0, **settings: object) -> Trace:
    """Return the program of a rank; six samples a rank unless told otherwise."""
    return recommender_job(TWO, **{"batch": 6, **settings}).traces[rank]


def test_inference_on_one_rank_is_look_ups_and_layers_in_their_order():
    layers = ["bottom0", "bottom1", "cross0", "cross1", "top0", "top1"]
    expected = ["look_up.F0"] + [f"{op}.{layer}.F0" for layer in layers for op in ("mm", "act")]
    assert _program(phase="inference").names() == expected


def test_the_backward_pass_takes_layers_from_the_last_to_the_first():
    names = _program().names()
    back = [name for name in names if name.startswith("mm.") and ".B0" in name]
    layers = ["top1", "top0", "cross1", "cross0", "bottom1", "bottom0"]
    products = [f"mm.{layer}.B0.{which}" for layer in layers for which in ("dw", "dx")]
    assert back == products[:-1]  # nobody needs the gradient of the features
    assert names[-1] == "adam"


def test_costs_of_layers_by_hand():
    of = costs(_program())
    # Six samples through a 3 x 8 matrix of 24 weights, numbers of two bytes.
    assert of["mm.bottom0.F0"] == (2 * 6 * 24, (6 * (3 + 8) + 24) * 2)
    assert of["mm.cross1.B0.dx"] == (2 * 6 * 24, (6 * (2 + 12) + 24) * 2)
    assert of["act.top0.F0"] == (5 * 6 * 6, 2 * 6 * 6 * 2)
    assert of["loss.B0"] == (5 * 6 * 1, 2 * 6 * 1 * 2)
    # Adam: gradient (2) and states (12) read, states (12) and weight (2) written.
    assert of["adam"] == (12 * 213, (2 + 12 + 12 + 2) * 213)


def test_look_ups_add_rows_of_own_tables_for_samples_of_all_ranks():
    """Six samples look up 1 + 3 rows of four numbers and write two sums."""
    of = costs(_program())
    assert of["look_up.F0"] == (6 * 4 * 4, 6 * 4 * (4 + 2) * 2)
    assert of["update_rows.B0"] == (2 * 6 * 4 * 4, 2 * 6 * 4 * (4 + 2) * 2)
    # Rank 0 has the table of 20 rows and three look-ups, rank 1 the other one.
    of_large, of_small = (costs(_program(rank, batch=12, data=2)) for rank in (0, 1))
    assert of_large["look_up.F0"] == (12 * 4 * 3, 12 * 4 * (3 + 1) * 2)
    assert of_small["look_up.F0"] == (12 * 4 * 1, 12 * 4 * (1 + 1) * 2)
    assert of_large["mm.top0.F0"] == of_small["mm.top0.F0"] == costs(_program())["mm.top0.F0"]


@pytest.mark.parametrize(("precision", "number", "gradient"), [("bf16", 2, 2), ("fp32", 4, 4)])
def test_collectives_by_hand(precision, number, gradient):
    """Of six own samples: four indices of 8 bytes; two rows of four numbers, there and back."""
    sizes = messages(_program(batch=12, data=2, precision=precision))
    assert sizes == {
        "indices.F0": 6 * 4 * 8,
        "rows.F0": 6 * 2 * 4 * number,
        "rows.B0": 6 * 2 * 4 * number,
        "gradients": 213 * gradient,
    }


def test_gradients_are_summed_once_rows_exchanged_each_time_and_one_rank_is_silent():
    assert messages(_program(micro_batches=3)) == {}
    sizes = messages(_program(batch=12, data=2, micro_batches=3))
    assert sizes["gradients"] == 213 * 2
    exchanged = [size for name, size in sizes.items() if name.startswith("rows.")]
    assert exchanged == [2 * 2 * 4 * 2] * 6  # two samples of a micro-batch, forward and backward


def test_communication_overlaps_what_does_not_need_it():
    trace = _program(batch=12, data=2)
    assert needs(trace, "look_up.F0") == {"indices.F0"}
    assert needs(trace, "rows.F0") == {"look_up.F0"}
    assert needs(trace, "mm.bottom0.F0") == set()
    assert needs(trace, "mm.cross0.F0") == {"act.bottom1.F0", "rows.F0"}
    trace = _program(batch=12, data=2)
    assert needs(trace, "rows.B0") == needs(trace, "act.bottom1.B0") == {"mm.cross0.B0.dx"}
    assert needs(trace, "update_rows.B0") == {"rows.B0"}


def test_the_optimizer_waits_for_all_gradients_of_dense_weights():
    made = {name for name in _program().names() if name.endswith(".dw")}
    assert len(made) == 6
    assert needs(_program(), "adam") == made
    split = _program(batch=12, data=2)
    assert needs(split, "gradients") == made
    assert needs(split, "adam") == {"gradients"}


def test_ranks_run_the_same_collectives_in_the_same_order():
    first, second = (messages(_program(rank, batch=24, data=2, micro_batches=2)) for rank in (0, 1))
    assert list(first.items()) == list(second.items())


TINY = RecommenderShape("tiny", (1000, 10, 500, 7), (3, 1, 2, 1), 16, 5, (32, 16), (64, 1), 2, 8)


def test_dlrm_v2_has_the_published_tables():
    """204,184,588 rows of 128 numbers: MLPerf's reference for multi-hot Criteo."""
    shape = RECOMMENDERS["dlrm-v2"]
    assert len(shape.rows) == 26
    assert shape.table_parameters == 204_184_588 * 128
    bottom = 14 * 512 + 513 * 256 + 257 * 128
    top = 3457 * 1024 + 1025 * 1024 + 1025 * 512 + 513 * 256 + 257
    cross = 3 * (2 * 27 * 128 * 512 + 27 * 128)
    assert shape.parameters == shape.table_parameters + bottom + cross + top


def test_the_front_door_knows_recommendation_models():
    assert ld.workload("dlrm-v2", data=4, batch=64).num_ranks == 4
    assert ld.workload(TINY, data=2, batch=64).num_ranks == 2
    with pytest.raises(UsageError, match="There is no recommendation model 'dlrm-v3'"):
        recommender_job("dlrm-v3")


def test_every_table_is_on_one_rank_and_large_ones_apart():
    tables = recommender_job("dlrm-v2", data=8, batch=64).tables
    assert sorted(table for held in tables for table in held) == list(range(26))
    large = [sum(RECOMMENDERS["dlrm-v2"].rows[t] == 40_000_000 for t in held) for held in tables]
    assert max(large) == 1


@pytest.mark.parametrize(("data", "micro_batches"), [(1, 2), (2, 1), (4, 2)])
def test_splitting_changes_no_operation(data, micro_batches):
    whole = recommender_job(TINY, batch=64).summary()
    split = recommender_job(TINY, batch=64, data=data, micro_batches=micro_batches).summary()
    assert split["matrix_flops"] == whole["matrix_flops"]
    matrices = [n * m for n, m in (*TINY.bottom_layers, *TINY.cross_matrices, *TINY.top_layers)]
    assert whole["matrix_flops"] == 64 * (6 * sum(matrices) - 2 * matrices[0])


def test_a_job_is_valid_and_runs_to_its_end():
    made = recommender_job("dlrm-v2", data=8, batch=8192, micro_batches=2)
    workload = made.workload()
    assert [f for f in check_workload(workload) if f.rule.severity.name == "ERROR"] == []
    result = simulate(workload, Cluster("small"), compute="h100")
    assert result.num_nodes == made.summary()["nodes"]


def test_layers_follow_from_the_widths():
    assert TWO.crossed == (2 + 1) * 4  # a row of each table, and the bottom network's output
    assert TWO.bottom_layers == ((3, 8), (8, 4))
    assert TWO.cross_matrices == ((12, 2), (2, 12))
    assert TWO.top_layers == ((12, 6), (6, 1))


def test_parameters_by_hand():
    assert TWO.table_parameters == (10 + 20) * 4
    bottom = 3 * 8 + 8 + 8 * 4 + 4  # weights and biases
    cross = 12 * 2 + 2 * 12 + 12  # two matrices, one bias
    top = 12 * 6 + 6 + 6 * 1 + 1
    assert TWO.dense_parameters == bottom + cross + top == 213
    assert TWO.parameters == 120 + 213


@pytest.mark.parametrize(
    "change",
    [
        {"rows": (10, 0)}, {"rows": (10, True)}, {"look_ups": (1, -1)},
        {"dense_inputs": 0}, {"bottom": (0, 4)}, {"top": (6, 0)}, {"cross_layers": 0},
    ],
)  # fmt: skip
def test_every_number_is_whole_and_at_least_one(change):
    with pytest.raises(ConfigError, match="model two: all numbers must be whole and at least 1"):
        dataclasses.replace(TWO, **change)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rows": (), "look_ups": ()}, "0 numbers of look-ups for 0 tables"),
        ({"look_ups": (1, 1, 1)}, "3 numbers of look-ups for 2 tables; give one for each table"),
        ({"bottom": ()}, "the bottom network ends with width 0, rows have 4; give the same"),
        ({"width": 8}, "the bottom network ends with width 4, rows have 8"),
        ({"top": ()}, "the top network ends with width 0, a prediction has 1; end it with 1"),
        ({"top": (6,)}, "the top network ends with width 6, a prediction has 1; end it with 1"),
    ],
)
def test_numbers_that_do_not_fit_together_are_refused(change, sentence):
    with pytest.raises(ConfigError, match=sentence):
        dataclasses.replace(TWO, **change)


def test_more_micro_batches_than_memory_holds_are_refused():
    with pytest.raises(ConfigError, match="1,000,000,000 micro-batches are more than the 100,000"):
        recommender_job("dlrm-v2", micro_batches=10**9)
