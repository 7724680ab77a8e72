"""Tensor degree: measured twins of the corpus; what no rule covers is refused."""

import pytest
from hypothesis import given, strategies as st
from laws import tried
from programs_by_hand import ITEM, costs, flags, gathers, operator, product, program, scatters, sums
from same_jobs import operators
from symbolic_jobs import GPT, small

from layerdag.errors import TraceError
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.run import simulate
from layerdag.traces.chakra.corpus import read_index, read_runs
from layerdag.workloads.scaling.program import EditableProgram
from layerdag.workloads.scaling.rescaling import scale
from layerdag.workloads.scaling.sharded import ShardCountChange
from layerdag.workloads.scaling.tensor import TensorSplit

NAMES = ("0822_mlp_tp_ws4", "0825_mlp_tp_ws4", "0831_gpt_tp_ws4", "0832_gpt_tp_ws4")


def test_two_tensor_ranks_tell_what_four_do():
    """SGD by parameter, a fused optimizer, clipping and multi-tensor Adam."""
    wanted = {r.run: r for r in read_index("data") if r.run in NAMES}
    targets = {run.record.run: run.traces[0] for run in read_runs("data", wanted.values())}
    twins = [r for r in read_index("data/twins") if r.run.removesuffix(".ws2") in NAMES]
    for run in read_runs("data/twins", twins):
        made = scale(run.workload(), ranks=4).workload
        assert operators(made.traces[3]) == operators(targets[run.record.run[:-4]])
        assert simulate(made, Cluster.preset("small")).makespan_ns > 0


def test_a_split_vocabulary_is_refused():
    with pytest.raises(TraceError, match="is no sum of what a product split by rows leaves"):
        scale(small(GPT, tensor=2).workload(), tensor=4)


def split_layer(shape: tuple[int, int, int]) -> EditableProgram:
    """Return what one rank runs of a layer: its first product split by columns, the second by rows.

    ``shape`` is (rows of the activations, width of the model, hidden units of the rank).
    """
    rows, width, hidden = shape
    return program(
        product(0, (rows, width, hidden)),
        operator(1, "aten::relu", (rows * hidden, 2 * rows * hidden), 0),
        product(2, (rows, hidden, width), 1),
        sums(3, rows * width, 2),
    )


def on(made: EditableProgram, new: int, old: int = 2, at: int = 3) -> EditableProgram:
    """Return a program of ``old`` tensor ranks, whose collective is at a row, on ``new``."""
    return TensorSplit(made, flags(made, at), ShardCountChange(old, new)).done()


def test_a_layer_on_twice_the_ranks_by_hand():
    """Four rows, six wide; 4 of 8 hidden units on each of two ranks, 2 on each of four."""
    made = on(split_layer((4, 6, 4)), 4)
    # 2 * 4 * 6 * 2 operations; activations stay, weight (6 x 2) and result (4 x 2) are halved.
    assert costs(made, 0) == (96, 24 + 12 + 8)
    assert costs(made, 1) == (8, 16)
    assert costs(made, 2) == (96, 8 + 12 + 24)
    assert made.comm_N[3] == 24 * ITEM  # the sum of whole activations is as large


def test_the_bias_after_a_split_by_rows_is_whole_on_each_rank():
    rows, width, hidden = 4, 6, 4
    # (4 x 4) by (4 x 6), and a bias of six that is read: 16 + 24 + 24 + 6 elements.
    nodes = (
        product(0, (rows, width, hidden)),
        operator(1, "aten::addmm", (2 * rows * hidden * width, 70), 0),
        sums(2, rows * width, 1),
    )
    made = on(program(*nodes), 4, at=2)
    assert costs(made, 1) == (96, 8 + 12 + 24 + 6)


@tried(30)
@given(
    shape=st.tuples(st.integers(2, 12), st.integers(2, 12), st.integers(1, 4)),
    old=st.integers(1, 4),
    new=st.integers(1, 6),
)
def test_operations_of_all_ranks_together_stay(shape, old, new):
    rows, width, hidden = shape
    all_units = hidden * old * new  # so that they divide by both degrees
    before = split_layer((rows, width, all_units // old))
    after = on(before, new, old)
    assert (new * after.ops_N == old * before.ops_N).all()
    wanted = split_layer((rows, width, all_units // new))
    for row in range(4):
        assert costs(after, row) == costs(wanted, row)
    assert after.comm_N.tolist() == before.comm_N.tolist()


def test_what_does_not_lie_between_the_products_stays_whole():
    """A norm before the split, and a sum with the residual after the all-reduce."""
    nodes = (
        operator(0, "aten::native_layer_norm", (24, 60)),
        product(1, (4, 6, 4), 0),
        product(2, (4, 4, 6), 1),
        sums(3, 24, 2),
        operator(4, "aten::add", (24, 72), 3, 0),
    )
    before = program(*nodes)
    after = on(before, 4)
    assert [costs(after, row) for row in (0, 4)] == [costs(before, row) for row in (0, 4)]
    assert costs(after, 1) == (96, 24 + 12 + 8)


def test_a_scalar_that_is_read_beside_shards_stays():
    """A factor of one element, 16 elements that are read and 16 that are written."""
    nodes = (
        product(0, (4, 6, 4)),
        operator(1, "aten::mul", (16, 33), 0),
        product(2, (4, 4, 6), 1),
        sums(3, 24, 2),
    )
    assert costs(on(program(*nodes), 4), 1) == (8, 8 + 8 + 1)


def test_hidden_units_that_do_not_divide_are_told_with_the_operator():
    # Four units on each of two ranks are eight of all: no third of these is whole.
    with pytest.raises(TraceError) as error:
        on(split_layer((4, 5, 4)), 3)
    told = str(error.value)
    assert told.startswith("job.0.et: node 0 (aten::mm) does not divide evenly over 3 tensor ranks")
    assert told.endswith("choose another degree.")


@pytest.mark.parametrize(
    "last",
    [gathers(3, 12, 2), scatters(3, 24, 2), sums(3, 23, 2)],
    ids=["a gather", "a scatter", "a sum of another size"],
)
def test_only_sums_of_results_of_a_product_are_followed(last):
    nodes = (
        product(0, (4, 6, 4)),
        operator(1, "aten::relu", (16, 32), 0),
        product(2, (4, 4, 6), 1),
    )
    with pytest.raises(TraceError, match=r"node 3 \(coll\) is no sum .* leave that degree at 2"):
        on(program(*nodes, last), 4)


def test_a_sum_without_a_product_before_it_is_refused():
    with pytest.raises(TraceError, match=r"node 1 \(coll\) is no sum"):
        on(program(operator(0, "aten::relu", (24, 48)), sums(1, 24, 0)), 4, at=1)


def trained(*, bias: bool) -> EditableProgram:
    """Return a layer, its gradients, and an optimizer that updates all weights in one operator.

    On each of two ranks the weights are (6 x 4) and (4 x 6); 12 elements more belong to a norm.
    """
    rows_by_columns, by_rows = (4, 6, 4), (4, 4, 6)
    last = operator(2, "aten::addmm", (192, 70), 1) if bias else product(2, by_rows, 1)
    return program(
        product(0, rows_by_columns),
        operator(1, "aten::relu", (16, 32), 0),
        last,
        sums(3, 24, 2),
        product(4, rows_by_columns, 3),  # gradient of the hidden units
        operator(5, "aten::threshold_backward", (16, 48), 4, 1),
        product(6, (6, 4, 4), 5),  # gradient of the first weight
        product(7, by_rows, 5),  # gradient of the input, summed over the ranks
        sums(8, 24, 7),
        product(9, (4, 4, 6), 1, 3),  # gradient of the second weight
        operator(10, "aten::_foreach_add_", (60, 120), 6, 9),
    )


def on_four(made: EditableProgram) -> EditableProgram:
    return TensorSplit(made, flags(made, 3, 8), ShardCountChange(2, 4)).done()


def test_gradients_of_split_weights_are_split():
    made = on_four(trained(bias=True))
    assert costs(made, 4) == (96, 24 + 12 + 8)  # opens the backward pass as row 0 the forward pass
    assert costs(made, 5) == (8, 24)
    assert costs(made, 6) == (96, 24 + 8 + 12)  # the whole input is an operand of each rank
    assert costs(made, 7) == (96, 8 + 12 + 24)
    assert costs(made, 9) == (96, 8 + 24 + 12)  # the whole gradient of the output is one


def test_an_optimizer_follows_split_weights_where_a_bias_tells_their_share():
    """Of 60 elements 2 * 24 are of split weights; four ranks have 2 * 12 of these and the rest."""
    assert costs(on_four(trained(bias=True)), 10) == (12 + 24, 2 * (12 + 24))
    with pytest.raises(TraceError, match="does not tell how many of them are split") as error:
        on_four(trained(bias=False))
    assert str(error.value).endswith("leave the tensor degree at 2.")
