"""The program of one rank of a recommendation model: operators, costs, what waits for what."""

import pytest
from small_recommenders import TWO
from written_programs import costs, messages, needs

from layerdag.traces import Trace
from layerdag.workloads.recommendation import recommender_job


def _program(rank: int = 0, **settings: object) -> Trace:
    """Return the program of a rank; six samples a rank unless told otherwise."""
    return recommender_job(TWO, **{"batch": 6, **settings}).programs[rank]


def test_inference_on_one_rank_is_look_ups_and_layers_in_their_order() -> None:
    layers = ["bottom0", "bottom1", "cross0", "cross1", "top0", "top1"]
    expected = ["look_up.F0"] + [f"{op}.{layer}.F0" for layer in layers for op in ("mm", "act")]
    assert _program(phase="inference").names() == expected


def test_the_backward_pass_takes_layers_from_the_last_to_the_first() -> None:
    names = _program().names()
    back = [name for name in names if name.startswith("mm.") and ".B0" in name]
    layers = ["top1", "top0", "cross1", "cross0", "bottom1", "bottom0"]
    products = [f"mm.{layer}.B0.{which}" for layer in layers for which in ("dw", "dx")]
    assert back == products[:-1]  # nobody needs the gradient of the features
    assert names[-1] == "adam"


def test_costs_of_layers_by_hand() -> None:
    of = costs(_program())
    # Six samples through a 3 x 8 matrix of 24 weights, numbers of two bytes.
    assert of["mm.bottom0.F0"] == (2 * 6 * 24, (6 * (3 + 8) + 24) * 2)
    assert of["mm.cross1.B0.dx"] == (2 * 6 * 24, (6 * (2 + 12) + 24) * 2)
    assert of["act.top0.F0"] == (5 * 6 * 6, 2 * 6 * 6 * 2)
    assert of["loss.B0"] == (5 * 6 * 1, 2 * 6 * 1 * 2)
    # Adam: gradient (2) and states (12) read, states (12) and weight (2) written.
    assert of["adam"] == (12 * 213, (2 + 12 + 12 + 2) * 213)


def test_look_ups_add_rows_and_write_a_sum_of_each_table() -> None:
    """Six samples look up 1 + 3 rows of four numbers and write two sums."""
    of = costs(_program())
    assert of["look_up.F0"] == (6 * 4 * 4, 6 * 4 * (4 + 2) * 2)
    assert of["update_rows.B0"] == (2 * 6 * 4 * 4, 2 * 6 * 4 * (4 + 2) * 2)


def test_a_rank_looks_up_its_own_tables_for_the_samples_of_all_ranks() -> None:
    """Rank 0 has the table of 20 rows and three look-ups, rank 1 the other one."""
    of_large, of_small = (costs(_program(rank, batch=12, data=2)) for rank in (0, 1))
    assert of_large["look_up.F0"] == (12 * 4 * 3, 12 * 4 * (3 + 1) * 2)
    assert of_small["look_up.F0"] == (12 * 4 * 1, 12 * 4 * (1 + 1) * 2)
    assert of_large["mm.top0.F0"] == of_small["mm.top0.F0"] == costs(_program())["mm.top0.F0"]


@pytest.mark.parametrize(("precision", "number", "gradient"), [("bf16", 2, 2), ("fp32", 4, 4)])
def test_collectives_by_hand(precision: str, number: int, gradient: int) -> None:
    """Of six own samples: four indices of 8 bytes; two rows of four numbers, there and back."""
    sizes = messages(_program(batch=12, data=2, precision=precision))
    assert sizes == {
        "indices.F0": 6 * 4 * 8,
        "rows.F0": 6 * 2 * 4 * number,
        "rows.B0": 6 * 2 * 4 * number,
        "gradients": 213 * gradient,
    }


def test_one_rank_communicates_with_nobody() -> None:
    assert messages(_program(micro_batches=3)) == {}


def test_gradients_are_summed_once_and_rows_exchanged_for_each_micro_batch() -> None:
    sizes = messages(_program(batch=12, data=2, micro_batches=3))
    assert sizes["gradients"] == 213 * 2
    exchanged = [size for name, size in sizes.items() if name.startswith("rows.")]
    assert exchanged == [2 * 2 * 4 * 2] * 6  # two samples of a micro-batch, forward and backward


def test_dense_features_are_computed_while_rows_are_on_their_way() -> None:
    trace = _program(batch=12, data=2)
    assert needs(trace, "look_up.F0") == {"indices.F0"}
    assert needs(trace, "rows.F0") == {"look_up.F0"}
    assert needs(trace, "mm.bottom0.F0") == set()
    assert needs(trace, "mm.cross0.F0") == {"act.bottom1.F0", "rows.F0"}


def test_gradients_of_rows_travel_while_the_bottom_network_goes_back() -> None:
    trace = _program(batch=12, data=2)
    assert needs(trace, "rows.B0") == needs(trace, "act.bottom1.B0") == {"mm.cross0.B0.dx"}
    assert needs(trace, "update_rows.B0") == {"rows.B0"}


def test_the_optimizer_waits_for_all_gradients_of_dense_weights() -> None:
    made = {name for name in _program().names() if name.endswith(".dw")}
    assert len(made) == 6
    assert needs(_program(), "adam") == made
    split = _program(batch=12, data=2)
    assert needs(split, "gradients") == made
    assert needs(split, "adam") == {"gradients"}


def test_ranks_run_the_same_collectives_in_the_same_order() -> None:
    first, second = (messages(_program(rank, batch=24, data=2, micro_batches=2)) for rank in (0, 1))
    assert list(first.items()) == list(second.items())
