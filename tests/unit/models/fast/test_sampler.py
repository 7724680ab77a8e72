"""Graphs that begin with given nodes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_models import SIZES, request, small_dags, small_model

from layerdag.dag.dag import DAG
from layerdag.dag.partial import Prefix
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import UsageError
from layerdag.models.base import SampleResult
from layerdag.models.draws import slot_uniforms
from layerdag.models.fast.constraints import DegreeConstraints
from layerdag.models.fast.sampler_state import RandomSlot


def given_half_of(dag: DAG) -> Prefix:
    return Prefix.from_dag(dag, max(1, dag.num_layers // 2))


@pytest.mark.parametrize("predict_out_degree", [False, True])
@pytest.mark.parametrize("best_of", [1, 4])
def test_completed_graphs_begin_with_the_prefix(best_of: int, predict_out_degree: bool) -> None:
    dags = small_dags(8)
    model = small_model(dags, predict_out_degree=predict_out_degree)
    prefix = given_half_of(max(dags, key=lambda dag: dag.num_layers))
    count, given = prefix.num_nodes, prefix.dag
    completed = model.sample(request(4, best_of=best_of, prefix=prefix)).dags
    for dag in completed:
        assert torch.equal(dag.x_NA[:count], given.x_NA[:count])
        assert torch.equal(dag.u_NA[:count], given.u_NA[:count])
        inside, wanted = (g.edge_index_2E[1] < count for g in (dag, given))
        assert torch.equal(dag.edge_index_2E[:, inside], given.edge_index_2E[:, wanted])
        assert torch.equal(dag.edge_type_E[inside], given.edge_type_E[wanted])
        assert torch.equal(dag.layer_N, dag.layers())
    rest = {tuple(dag.x_NA[count:].flatten().tolist()) for dag in completed}
    assert len(rest) == 4


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_a_sample_given_a_part_of_itself_is_itself(seed: int) -> None:
    """The encoder must be in the same state after given nodes as after drawn ones."""
    model = small_model(small_dags(8), predict_out_degree=False)
    asked = request(1, seeds=(seed,))
    (whole,) = model.sample(asked).dags
    assert whole.num_layers > 2
    for layers in range(1, whole.num_layers):  # the last layer may be cut off
        again = model.sample(request(1, seeds=(seed,), prefix=Prefix.from_dag(whole, layers))).dags[
            0
        ]
        assert torch.equal(again.x_NA, whole.x_NA)
        assert torch.equal(again.edge_index_2E, whole.edge_index_2E)


def test_a_prefix_that_fills_the_graph_is_refused() -> None:
    dags = small_dags(8)
    prefix = given_half_of(max(dags, key=lambda dag: dag.num_layers))
    with pytest.raises(UsageError, match="nothing is left to complete"):
        small_model(dags).sample(request(1, prefix=prefix, max_nodes=prefix.num_nodes))


def test_children_that_are_given_are_not_drawn() -> None:
    """Nodes whose children are all given get new ones only where there is no other parent."""
    model = small_model(small_dags(8), predict_out_degree=False, block=64)
    first = DAG.build(torch.zeros(20, 3, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64))
    prefix = Prefix.from_dag(first, 1)

    def even_parents(reserved: int) -> int:
        held = replace(prefix, reserved=(reserved, 0) * 10)
        drawn = model.sample(request(8, max_layers=2, min_layers=2, prefix=held)).dags
        return sum(int((dag.edge_index_2E[0] % 2 == 0).sum()) for dag in drawn)

    assert even_parents(1000) < 0.7 * even_parents(0)


def test_no_graph_ends_before_the_fewest_layers() -> None:
    model = small_model(small_dags(8))
    free = model.sample(request(8)).dags
    fewest = min(dag.num_layers for dag in free) + 1
    for dag in model.sample(request(8, min_layers=fewest, max_layers=fewest)).dags:
        assert dag.num_layers == fewest or dag.num_nodes == 60


def same(left: DAG, right: DAG) -> bool:
    return all(
        torch.equal(getattr(left, name), getattr(right, name))
        for name in ("x_NA", "u_NA", "edge_index_2E", "edge_type_E")
    )


def sampled(count: int = 12, **changes: object) -> SampleResult:
    return small_model(small_dags()).sample(request(count, **changes))


def test_a_graph_does_not_depend_on_its_batch_mates():
    together = sampled(12).dags
    for index in (0, 5, 11):
        assert same(sampled(1, seeds=(100 + index,)).dags[0], together[index])


def test_seeds_differ():
    first, *others = sampled(12).dags
    assert not all(same(first, other) for other in others)


def test_graphs_are_sound_and_in_layer_order():
    for dag in sampled(12).dags:
        layer_N = dag.check().layers()
        assert torch.equal(layer_N, layer_N.sort().values)


def test_in_degrees_stay_within_those_of_training():
    dags = small_dags()
    seen = GraphStatistics.measure(dags, SIZES).in_degrees
    for dag in small_model(dags).sample(request(12)).dags:
        degree_N = torch.bincount(dag.edge_index_2E[1], minlength=dag.num_nodes)
        for kind, degree in zip(dag.x_NA[:, 0].tolist(), degree_N.tolist(), strict=True):
            degrees = [count for count, _ in seen[kind]]
            assert min(degrees) <= degree <= max(degrees)


def test_codes_and_positions_stay_within_bounds():
    for dag in sampled(12).dags:
        assert (dag.x_NA < torch.tensor(SIZES.attributes)).all()
        assert (dag.edge_type_E < SIZES.edge_types).all()
        assert (dag.u_NA >= 0).all()
        assert (dag.u_NA < 1).all()


def test_limits_cut_graphs_and_say_so():
    result = sampled(12, max_nodes=7)
    assert max(dag.num_nodes for dag in result.dags) == 7
    assert any(result.truncated)
    for dag, cut in zip(result.dags, result.truncated, strict=True):
        assert not cut or dag.num_nodes == 7
    flat = sampled(12, max_layers=2)
    assert max(int(dag.layers().max()) for dag in flat.dags) == 1
    assert any(flat.truncated)


def test_guidance_of_one_is_plain_conditioning_and_more_changes_the_graphs():
    plain, strong = sampled(6).dags, sampled(6, guidance=3.0).dags
    assert not all(same(a, b) for a, b in zip(plain, strong, strict=True))
    for dag in strong:
        dag.check()


def test_guidance_without_a_condition_changes_nothing():
    unknown = {
        "numeric_BC": torch.full((6, 1), torch.nan),
        "category_BM": torch.full((6, 1), -1),
    }
    plain, guided = sampled(6, **unknown).dags, sampled(6, guidance=2.0, **unknown).dags
    assert all(same(a, b) for a, b in zip(plain, guided, strict=True))


@pytest.mark.parametrize("hidden", ["numeric_BC", "category_BM"])
def test_guidance_of_zero_is_sampling_without_the_conditions(hidden: str):
    """The formula's other end: unknown + 0 (known - unknown), of numbers and of categories."""
    unknown = {
        "numeric_BC": torch.full((3, 1), torch.nan),
        "category_BM": torch.full((3, 1), -1),
    }
    given = {name: value for name, value in unknown.items() if name != hidden}
    free = sampled(3, **unknown).dags
    assert all(
        same(a, b) for a, b in zip(sampled(3, guidance=0.0, **given).dags, free, strict=True)
    )
    assert not all(same(a, b) for a, b in zip(sampled(3, **given).dags, free, strict=True))


def test_guidance_of_nearly_one_is_plain_conditioning():
    nearly = sampled(3, guidance=1.0 + 1e-9).dags
    assert all(same(a, b) for a, b in zip(sampled(3).dags, nearly, strict=True))


def test_guidance_of_two_lies_between_its_neighbors():
    found, nearly = sampled(3, guidance=2.0).dags, sampled(3, guidance=2.0 + 1e-9).dags
    assert all(same(a, b) for a, b in zip(found, nearly, strict=True))


def test_positions_inside_bins_are_the_numbers_of_their_node():
    """Node n of a graph takes the numbers of position n + 1, whatever its batch mates are."""
    for seed, dag in zip((100, 101, 102), sampled(3).dags, strict=True):
        attributes = dag.x_NA.shape[1]
        slots = range(RandomSlot.POSITION_IN_BIN, RandomSlot.POSITION_IN_BIN + attributes)
        seed_N = np.full(dag.num_nodes, seed, dtype=np.uint64)
        expected_NA = slot_uniforms(seed_N, np.arange(dag.num_nodes) + 1, slots)
        torch.testing.assert_close(dag.u_NA, expected_NA.float().clamp(max=1 - 2**-24))


def test_no_seeds_give_no_graphs():
    assert sampled(0).dags == ()


def test_a_limit_below_one_is_refused():
    with pytest.raises(UsageError, match="at least one node"):
        sampled(2, max_nodes=0)


def test_a_node_without_capacity_is_a_parent_only_if_there_is_no_other_candidate(monkeypatch):
    """Kind 0 may have no children: a parent of kind 0 had rivals of kind 0 alone."""
    monkeypatch.setattr(
        DegreeConstraints, "capacity", lambda self, kind_B, out_degree_B: 1000 * (kind_B > 0)
    )
    full, chosen = 0, 0
    for dag in small_model(small_dags(), block=64).sample(request(40)).dags:
        kind_N, layer_N = dag.x_NA[:, 0], dag.layers()
        source_E, target_E = dag.edge_index_2E
        for child in range(dag.num_nodes):
            parents = source_E[target_E == child].sort(descending=True).values.tolist()
            for rank, parent in enumerate(parents):
                rivals_N = layer_N == layer_N[child] - 1
                if rank:
                    rivals_N = torch.zeros_like(rivals_N)
                    rivals_N[len(parents) - rank - 1 : parents[rank - 1]] = True
                full += int(kind_N[parent] == 0)
                chosen += int(kind_N[parent] > 0)
                assert kind_N[parent] > 0 or (kind_N[rivals_N] == 0).all()
    assert chosen > 10 * full > 0
