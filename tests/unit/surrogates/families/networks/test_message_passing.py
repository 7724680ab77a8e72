import numpy as np
import pytest
import torch

from layerdag.errors import DataError
from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates import Labeled
from layerdag.surrogates.families import NetworkSettings, fit_message_passing

SMALL = NetworkSettings(width=16, rounds=1, epochs=20, batch_size=8, learning_rate=1e-2)


def test_the_network_learns_a_sum_over_nodes(
    real: Labeled, test_set: Labeled, sizes: GraphSizes
) -> None:
    model = fit_message_passing(real.dags, real.target_B, sizes, settings=SMALL)
    assert np.corrcoef(model.predict(test_set.dags), test_set.target_B)[0, 1] > 0.7


def test_a_fit_repeats_with_its_seed_and_leaves_the_global_stream(
    real: Labeled, sizes: GraphSizes
) -> None:
    before = torch.get_rng_state()
    brief = NetworkSettings(width=8, epochs=2)
    first, second = (
        fit_message_passing(real.dags, real.target_B, sizes, seed=1, settings=brief)
        for _ in range(2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first.predict(real.dags), second.predict(real.dags))


def test_held_back_graphs_choose_the_epoch_and_teach_nothing(
    real: Labeled, sizes: GraphSizes
) -> None:
    # With one epoch there is nothing to choose, so only graphs that are trained on change a fit.
    brief = NetworkSettings(width=4, rounds=1, epochs=1, validation_fraction=0.3)
    dags, other = list(real.dags[:10]), real.dags[10]

    def weights(graphs: list[DAG]) -> np.ndarray:
        model = fit_message_passing(graphs, real.target_B[:10], sizes, settings=brief)
        return np.concatenate([array.ravel() for array in model.arrays().values()])

    whole = weights(dags)
    same = [np.array_equal(weights([*dags[:i], other, *dags[i + 1 :]]), whole) for i in range(10)]
    assert sum(same) == 3


def test_a_prediction_does_not_depend_on_node_order_or_batch(
    real: Labeled, sizes: GraphSizes, rng: np.random.Generator
) -> None:
    model = fit_message_passing(
        real.dags, real.target_B, sizes, settings=NetworkSettings(width=8, epochs=1)
    )
    dag = real.dags[0]
    shuffled = dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes)))
    alone = model.predict([dag])
    together = model.predict([*real.dags[1:9], shuffled])
    assert together[-1] == pytest.approx(alone[0], rel=1e-4)


def test_edge_direction_matters(real: Labeled, sizes: GraphSizes) -> None:
    from dataclasses import replace

    model = fit_message_passing(
        real.dags, real.target_B, sizes, settings=NetworkSettings(width=8, epochs=1)
    )
    turned = replace(real.dags[0], edge_index_2E=real.dags[0].edge_index_2E.flip(0))
    assert model.predict([turned])[0] != pytest.approx(model.predict([real.dags[0]])[0], rel=1e-6)


def test_a_graph_of_another_schema_is_refused(real: Labeled) -> None:
    with pytest.raises(DataError, match="2 node attributes but the surrogate knows 1"):
        fit_message_passing(real.dags, real.target_B, GraphSizes(attributes=(4,)), settings=SMALL)
    few = GraphSizes(attributes=(4, 3), edge_types=1)
    with pytest.raises(DataError, match="does not know"):
        fit_message_passing(real.dags, real.target_B, few, settings=SMALL)
