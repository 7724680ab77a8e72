"""Message passing: fits, predictions; one network for several targets."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.errors import DataError, UsageError
from layerdag.surrogates.families.networks import (
    MessagePassingNetwork,
    NetworkSettings,
    fit_message_passing,
    fit_several,
    known_data,
    loss_of,
    ranking_loss,
)
from layerdag.surrogates.targets import Labeled

BRIEF = NetworkSettings(width=8, rounds=1, epochs=2)
SMALL = NetworkSettings(width=16, rounds=1, epochs=20, batch_size=8, learning_rate=1e-2)


def gain(known: Labeled) -> np.ndarray:
    """Return a second target, in another unit and with negative numbers."""
    return 1000.0 * (known.target_B - 40.0)


def test_a_network_shared_by_one_target_is_the_network_of_that_target(real, sizes):
    alone = fit_message_passing(real.dags, real.target_B, sizes, seed=3, settings=BRIEF)
    (shared,) = fit_several(real.dags, {"cost": real.target_B}, sizes, BRIEF, 3)
    assert shared.config() == alone.config()
    assert {n: a.tolist() for n, a in shared.arrays().items()} == {
        n: a.tolist() for n, a in alone.arrays().items()
    }


def test_each_output_learns_its_target_though_half_of_the_graphs_lack_one(real, test_set, sizes):
    gain_B = gain(real)
    gain_B[::2] = np.nan
    targets = {"cost": real.target_B, "gain": gain_B}
    cost, gain_of = fit_several(real.dags, targets, sizes, SMALL, 0)
    assert cost.shares_arrays(gain_of)
    assert (cost.outputs, cost.output, gain_of.output) == (("cost", "gain"), 0, 1)
    assert (cost.scale.log, gain_of.scale.log) == (True, False)
    assert np.corrcoef(cost.predict(test_set.dags), test_set.target_B)[0, 1] > 0.5
    assert np.corrcoef(gain_of.predict(test_set.dags), gain(test_set))[0, 1] > 0.5
    assert cost.predict([]).shape == gain_of.predict([]).shape == (0,)


def test_a_target_of_one_graph_teaches_no_scale(real, sizes):
    rare_B = np.full(len(real.dags), np.nan)
    rare_B[0] = 1.0
    targets = {"cost": real.target_B, "rare": rare_B}
    with pytest.raises(UsageError, match="at least two graphs"):
        fit_several(real.dags, targets, sizes, BRIEF, 0)


fit = partial(fit_message_passing, settings=replace(BRIEF, rounds=3, epochs=1))


def test_a_fit_repeats_with_its_seed_and_leaves_the_global_stream(real, sizes):
    before = torch.get_rng_state()
    first, second, other = (fit(real.dags, real.target_B, sizes, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first.predict(real.dags), second.predict(real.dags))
    assert first.predict(real.dags).tolist() != other.predict(real.dags).tolist()


def test_a_prediction_depends_on_the_direction_of_edges_and_on_no_order_or_batch(real, sizes, rng):
    model, dag = fit(real.dags, real.target_B, sizes), real.dags[0]
    (alone,) = model.predict([dag])
    shuffled = dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes)))
    assert model.predict([*real.dags[1:9], shuffled])[-1] == pytest.approx(alone, rel=1e-4)
    turned = replace(dag, edge_index_2E=dag.edge_index_2E.flip(0))
    assert model.predict([turned])[0] != pytest.approx(alone, rel=1e-6)


def test_a_graph_of_another_schema_is_refused(real):
    with pytest.raises(DataError, match="2 node attributes but the surrogate knows 1"):
        fit(real.dags, real.target_B, GraphSizes(attributes=(4,)))
    with pytest.raises(DataError, match="does not know"):
        fit(real.dags, real.target_B, GraphSizes(attributes=(4, 3), edge_types=1))


def test_held_back_graphs_choose_the_epoch_and_teach_nothing(real, sizes):
    # With one epoch there is nothing to choose, so only graphs that are trained on change a fit.
    brief = NetworkSettings(width=4, rounds=1, epochs=1, validation_fraction=0.3)
    dags, other = list(real.dags[:10]), real.dags[10]

    def weights(graphs: list[DAG]) -> np.ndarray:
        model = fit_message_passing(graphs, real.target_B[:10], sizes, settings=brief)
        return np.concatenate([array.ravel() for array in model.arrays().values()])

    whole = weights(dags)
    same = [np.array_equal(weights([*dags[:i], other, *dags[i + 1 :]]), whole) for i in range(10)]
    assert sum(same) == 3


@pytest.mark.parametrize(("outputs", "shape"), [(1, (3,)), (2, (3, 2))])
def test_a_network_has_an_output_for_each_target(outputs, shape, real, sizes):
    batch = Batch.from_data_list([known_data(dag, sizes) for dag in real.dags[:3]])
    network = MessagePassingNetwork(sizes, 8, 1, outputs)
    assert network(batch).shape == torch.Size(shape)


def test_the_ranking_loss_falls_as_pairs_come_into_order():
    target_B = torch.tensor([1.0, 2.0, 3.0])
    right, wrong = ranking_loss(target_B * 5, target_B), ranking_loss(-target_B * 5, target_B)
    assert right < ranking_loss(torch.zeros(3), target_B) < wrong
    torch.testing.assert_close(ranking_loss(torch.zeros(3), target_B), torch.log(torch.tensor(2.0)))


def test_pairs_of_equal_targets_have_no_order():
    target_B = torch.ones(4)
    assert ranking_loss(torch.randn(4), target_B) == 0
    predicted_B = torch.tensor([0.0, 9.0, 4.0])
    tied_B = torch.tensor([1.0, 1.0, 2.0])
    expected = torch.nn.functional.softplus(-torch.tensor([4.0, -5.0])).mean()
    torch.testing.assert_close(ranking_loss(predicted_B, tied_B), expected)


def test_a_missing_target_moves_its_output_nowhere_and_the_others_still_teach():
    nan = float("nan")
    target_BT = torch.tensor([[1.0, nan, nan], [0.0, 2.0, nan], [nan, 1.0, nan], [2.0, nan, nan]])
    predicted_BT = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    predicted_BT.requires_grad_()
    loss = loss_of(predicted_BT, target_BT, ranking_weight=0.5)
    loss.backward()
    gradient_BT = predicted_BT.grad
    assert gradient_BT is not None
    assert torch.equal(gradient_BT != 0, target_BT.isfinite())
    alone = [
        loss_of(predicted_BT[rows][:, [column]], target_BT[rows][:, [column]], 0.5)
        for column, rows in ((0, [0, 1, 3]), (1, [1, 2]))
    ]
    torch.testing.assert_close(loss, alone[0] + alone[1])


def test_the_ranking_loss_takes_part_in_a_fit_when_asked(real, test_set, sizes):
    plain = NetworkSettings(width=16, rounds=1, epochs=10, batch_size=8, learning_rate=1e-2)
    ranked = NetworkSettings(
        width=16, rounds=1, epochs=10, batch_size=8, learning_rate=1e-2, ranking_weight=1.0
    )
    found = [
        fit_message_passing(real.dags, real.target_B, sizes, settings=one).predict(test_set.dags)
        for one in (plain, ranked)
    ]
    assert found[0].tolist() != found[1].tolist()
    assert np.corrcoef(found[1], test_set.target_B)[0, 1] > 0.7
