from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch

from layerdag.datasets import columns_to_pyg
from layerdag.errors import DataError, UsageError
from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates import Labeled
from layerdag.surrogates.families import (
    DAGAttention,
    DAGTransformer,
    TransformerSettings,
    fit_dag_transformer,
)

SMALL = TransformerSettings(
    width=16, rounds=1, heads=2, epochs=40, batch_size=8, learning_rate=1e-2
)
BRIEF = replace(SMALL, width=8, epochs=1)


def test_the_transformer_learns_a_sum_over_nodes(
    real: Labeled, test_set: Labeled, sizes: GraphSizes
) -> None:
    model = fit_dag_transformer(real.dags, real.target_B, sizes, settings=SMALL)
    assert model.family == "dag_transformer"
    assert np.corrcoef(model.predict(test_set.dags), test_set.target_B)[0, 1] > 0.6


def test_a_fit_repeats_with_its_seed_and_leaves_the_global_stream(
    real: Labeled, sizes: GraphSizes
) -> None:
    before = torch.get_rng_state()
    first, second, other = (
        fit_dag_transformer(real.dags, real.target_B, sizes, seed=seed, settings=BRIEF)
        for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first.predict(real.dags), second.predict(real.dags))
    assert first.predict(real.dags).tolist() != other.predict(real.dags).tolist()


def test_a_prediction_does_not_depend_on_node_order_or_batch(
    real: Labeled, sizes: GraphSizes, rng: np.random.Generator
) -> None:
    model = fit_dag_transformer(real.dags, real.target_B, sizes, settings=BRIEF)
    dag = real.dags[0]
    shuffled = dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes)))
    together = model.predict([*real.dags[1:9], shuffled])
    assert together[-1] == pytest.approx(model.predict([dag])[0], rel=1e-4)


def test_edge_direction_matters(real: Labeled, sizes: GraphSizes) -> None:
    model = fit_dag_transformer(real.dags, real.target_B, sizes, settings=BRIEF)
    dag = real.dags[0]
    turned = DAG.build(
        dag.x_NA, dag.edge_index_2E.flip(0), edge_type_E=dag.edge_type_E, u_NA=dag.u_NA
    )
    assert model.predict([turned])[0] != pytest.approx(model.predict([dag])[0], rel=1e-6)


def test_a_node_hears_what_reaches_it_and_what_it_reaches_alone() -> None:
    torch.manual_seed(0)
    attention = DAGAttention(width=4, heads=2)
    # 0 -> 1; 2 stands apart.
    above = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.bool)
    seen = torch.stack([above, above.T])[:, None]
    masks = [torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)]
    h_ND = torch.randn(3, 4)
    before = attention(h_ND, masks)
    h_ND[2] += 1
    after = attention(h_ND, masks)
    assert torch.equal(before[:2], after[:2])
    assert not torch.allclose(before[2], after[2])
    h_ND[0] += 1
    assert not torch.allclose(after[1], attention(h_ND, masks)[1])


def test_the_module_alone_takes_any_pyg_batch(real: Labeled, sizes: GraphSizes) -> None:
    network = DAGTransformer(sizes, BRIEF).eval()
    data = [columns_to_pyg(dag, 0.0) for dag in real.dags[:3]]
    bare = network(Batch.from_data_list([one.clone() for one in data]))
    prepared = network(Batch.from_data_list([network.prepared(one) for one in data]))
    assert bare.shape == (3,)
    torch.testing.assert_close(bare, prepared)
    bare.sum().backward()
    assert all(p.grad is not None for p in network.parameters())


@pytest.mark.parametrize(("heads", "width"), [(3, 48), (0, 48), (4, 46)])
def test_heads_that_cannot_be_halved_are_refused(heads: int, width: int) -> None:
    with pytest.raises(UsageError, match="heads must be even"):
        TransformerSettings(heads=heads, width=width)


def test_a_graph_of_another_schema_is_refused(real: Labeled) -> None:
    with pytest.raises(DataError, match="2 node attributes but the surrogate knows 1"):
        fit_dag_transformer(real.dags, real.target_B, GraphSizes(attributes=(4,)), settings=BRIEF)
