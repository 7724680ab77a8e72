"""Graphs that models sample: given nodes, guidance, limits, particles, checks."""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from small_models import SIZES, collated, request, small_dags, small_model

from layerdag.dag.dag import DAG, DAGBatch
from layerdag.dag.neighbors import neighbor_kinds
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import UsageError
from layerdag.models.base import PartialCheck, SampleRequest, SampleResult
from layerdag.models.draws import slot_uniforms
from layerdag.models.fast import sampling_inputs
from layerdag.models.fast.degree_constraints import DegreeConstraints
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.fast.neighbor_kinds import NeighborKinds
from layerdag.models.fast.particles import resampled_rows, surviving_particles
from layerdag.models.fast.sampling_inputs import SLOTS_PER_PARENT, Guidance, RandomSlot
from layerdag.models.fast.sampling_output import OutputBuffer


def same(left: DAG, right: DAG) -> bool:
    return all(
        torch.equal(getattr(left, name), getattr(right, name))
        for name in ("x_NA", "u_NA", "edge_index_2E", "edge_type_E")
    )


def sampled(count: int = 12, **changes: object) -> SampleResult:
    return small_model(small_dags()).sample(request(count, **changes))


@cache
def usual() -> tuple[DAG, ...]:
    return sampled(12).dags


def test_a_graph_does_not_depend_on_its_batch_mates():
    together = usual()
    for index in (0, 5, 11):
        assert same(sampled(1, seeds=(100 + index,)).dags[0], together[index])


def test_graphs_are_sound_and_stay_within_the_codes_and_in_degrees_of_training():
    seen = GraphStatistics.measure(small_dags(), SIZES).in_degrees
    for dag in usual():
        layer_N = dag.check().layers()
        assert torch.equal(layer_N, layer_N.sort().values)
        assert (dag.x_NA < torch.tensor(SIZES.attributes)).all()
        assert (dag.edge_type_E < SIZES.edge_types).all()
        degree_N = torch.bincount(dag.edge_index_2E[1], minlength=dag.num_nodes)
        for kind, degree in zip(dag.x_NA[:, 0].tolist(), degree_N.tolist(), strict=True):
            degrees = [count for count, _ in seen[kind]]
            assert min(degrees) <= degree <= max(degrees)


def test_limits_cut_graphs_and_say_so():
    result = sampled(12, max_nodes=7)
    assert max(dag.num_nodes for dag in result.dags) == 7
    assert any(result.truncated)
    for dag, cut in zip(result.dags, result.truncated, strict=True):
        assert not cut or dag.num_nodes == 7
    flat = sampled(12, max_layers=2)
    assert max(int(dag.layers().max()) for dag in flat.dags) == 1
    assert any(flat.truncated)


def test_guidance_without_a_condition_changes_nothing():
    unknown = {"numeric_BC": torch.full((6, 1), torch.nan), "category_BM": torch.full((6, 1), -1)}
    plain, guided = sampled(6, **unknown).dags, sampled(6, guidance=2.0, **unknown).dags
    assert all(same(a, b) for a, b in zip(plain, guided, strict=True))


@pytest.mark.parametrize("hidden", ["numeric_BC", "category_BM"])
def test_guidance_of_zero_is_sampling_without_the_conditions(hidden):
    """The formula's other end: unknown + 0 (known - unknown), of numbers and of categories."""
    unknown = {"numeric_BC": torch.full((3, 1), torch.nan), "category_BM": torch.full((3, 1), -1)}
    given = {name: value for name, value in unknown.items() if name != hidden}
    free = sampled(3, **unknown).dags
    assert all(
        same(a, b) for a, b in zip(sampled(3, guidance=0.0, **given).dags, free, strict=True)
    )
    assert not all(same(a, b) for a, b in zip(sampled(3, **given).dags, free, strict=True))


def test_guidance_of_nearly_one_is_plain_conditioning():
    nearly = sampled(3, guidance=1.0 + 1e-9).dags
    assert all(same(a, b) for a, b in zip(usual(), nearly, strict=False))


def test_positions_inside_bins_are_the_numbers_of_their_node():
    """Node n of a graph takes the numbers of position n + 1, whatever its batch mates are."""
    for seed, dag in zip((100, 101, 102), usual(), strict=False):
        attributes = dag.x_NA.shape[1]
        slots = range(RandomSlot.POSITION_IN_BIN, RandomSlot.POSITION_IN_BIN + attributes)
        seed_N = np.full(dag.num_nodes, seed, dtype=np.uint64)
        expected_NA = slot_uniforms(seed_N, np.arange(dag.num_nodes) + 1, slots)
        torch.testing.assert_close(dag.u_NA, expected_NA.float().clamp(max=1 - 2**-24))


def test_no_seeds_give_no_graphs_and_a_limit_below_one_is_refused():
    assert sampled(0).dags == ()
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


weights = st.lists(st.floats(0.001, 1.0), min_size=1, max_size=8).map(np.array)


@given(weights, st.floats(0, 0.999))
def test_a_particle_has_its_share_of_copies_to_less_than_one(weight_P, uniform):
    (source_P,) = surviving_particles(weight_P[None], np.array([uniform]))
    copies_P = np.bincount(source_P, minlength=weight_P.size)
    assert (np.abs(copies_P - weight_P.size * weight_P / weight_P.sum()) < 1 + 1e-9).all()


@given(weights, st.floats(0, 0.999))
def test_a_particle_with_a_copy_stays_in_its_place(weight_P, uniform):
    (source_P,) = surviving_particles(weight_P[None], np.array([uniform]))
    alive = np.unique(source_P)
    assert (source_P[alive] == alive).all()


def test_copies_are_the_share_of_the_weight_in_expectation():
    weight_P = np.array([0.1, 0.2, 0.4, 0.3])
    uniform_G = (np.arange(1000) + 0.5) / 1000
    source_GP = surviving_particles(np.tile(weight_P, (1000, 1)), uniform_G)
    copies = np.bincount(source_GP.flatten(), minlength=4)
    assert copies / 1000 == pytest.approx(4 * weight_P, abs=0.005)


def test_rows_go_on_with_rows_of_their_own_graph_whatever_the_batch():
    seeds = np.array([5, 6, 7], dtype=np.uint64)
    sample_B = np.array([0, 1, 2, 4, 5, 6, 7, 8])  # sample 3 has ended
    log_weight_B = np.array([0, -3, 0, 0, -3, -3, 0, 0.0])
    at = np.full(8, 8)
    source_B = resampled_rows(sample_B, log_weight_B, 3, seeds, at)
    assert (sample_B[source_B] // 3 == sample_B // 3).all()
    alone = resampled_rows(sample_B[3:5] - 3, log_weight_B[3:5], 3, seeds[1:], at[:2])
    assert (alone + 3 == source_B[3:5]).all()
    assert source_B[4] == 3  # e^-3 of the weight is no whole copy unless the uniform is large


def with_lists(model: FastLayerDAG, dags: list) -> FastLayerDAG:
    parents, children = neighbor_kinds(dags, SIZES.attributes[0], 1)
    statistics = replace(model.statistics, parents=parents, children=children)
    model.neighbors = NeighborKinds(statistics)
    return model


def test_more_graphs_are_drawn_for_one_where_neighbors_are_listed():
    dags = small_dags()
    assert small_model(dags).default_best_of == 4
    assert with_lists(small_model(dags), dags).default_best_of == 8
    unconditional = with_lists(small_model(dags), dags)
    unconditional.posterior = None
    assert unconditional.default_best_of == 1


def drawn(model: FastLayerDAG, count: int, best_of: int, **changes: object) -> SampleResult:
    return model.sample(request(count, best_of=best_of, **changes))


def test_candidates_for_each_node_leave_fewer_violations_than_particles_alone(monkeypatch):
    dags = small_dags(8)
    model = with_lists(small_model(dags), dags)

    def unlisted_parents(candidates: int) -> float:
        monkeypatch.setattr(sampling_inputs, "NODE_CANDIDATES", candidates)
        batch = collated(list(drawn(model, 12, best_of=2, max_nodes=40).dags))
        kind_N, (source_E, target_E) = batch.x_NA[:, 0], batch.edge_index_2E
        fits_N = model.neighbors.of_parents.accepts(kind_N, target_E, kind_N[source_E])
        return 1 - float(fits_N.float().mean())

    assert unlisted_parents(16) < 0.7 * unlisted_parents(1)


@pytest.mark.parametrize("guidance", [1.0, 1.5])
def test_a_graph_does_not_depend_on_its_batch(guidance):
    dags = small_dags()
    model = with_lists(small_model(dags), dags)
    together = drawn(model, 3, best_of=3, guidance=guidance, max_nodes=30).dags
    alone = drawn(model, 1, best_of=3, guidance=guidance, max_nodes=30).dags
    assert all((dag.check().layers().diff() >= 0).all() for dag in together)
    assert alone[0].x_NA.tolist() == together[0].x_NA.tolist()
    assert alone[0].edge_index_2E.tolist() == together[0].edge_index_2E.tolist()
    assert torch.equal(alone[0].u_NA, together[0].u_NA)


def test_a_sample_that_branched_has_the_history_of_its_source_and_goes_on_by_itself():
    buffer = OutputBuffer(np.arange(4, dtype=np.uint64))
    one = torch.tensor([1])

    def add(sample: int, code: int) -> None:
        buffer.add_nodes(torch.tensor([sample]), torch.tensor([[code]]), torch.tensor([code % 10]))

    for sample, code in ((0, 10), (1, 20), (2, 30), (0, 11), (1, 21)):
        add(sample, code)
    buffer.add_edges(one, torch.tensor([1]), torch.tensor([2]), torch.tensor([0]))
    buffer.branch(np.array([0, 1, 2]), np.array([1, 1, 2]))
    for sample, code in ((0, 12), (2, 31)):
        add(sample, code)
    buffer.branch(np.array([0, 1, 2]), np.array([0, 1, 0]))
    add(1, 22)
    codes = [dag.x_NA[:, 0].tolist() for dag in buffer.result().dags]
    assert codes == [[20, 21, 12], [20, 21, 22], [20, 21, 12]]
    assert [dag.edge_index_2E.T.tolist() for dag in buffer.result().dags] == [[[0, 1]]] * 3


class Forbidding(PartialCheck):
    """No node may be of a kind; a graph may end once it has enough nodes."""

    def __init__(self, kind: int, least: int = 0) -> None:
        self.kind, self.least = kind, least

    def start(self, rows: int) -> None:
        self.nodes_B = torch.zeros(rows, dtype=torch.int64)

    def add(self, x_BA, row_X, parent_X, type_X):
        assert len(row_X) == len(parent_X) == len(type_X)
        assert not len(row_X) or int(parent_X.max()) < int(self.nodes_B.max())
        self.nodes_B = self.nodes_B + 1
        return x_BA[:, 0] != self.kind

    def may_end(self):
        return self.nodes_B >= self.least

    def select(self, row_R):
        self.nodes_B = self.nodes_B[row_R]


def test_particles_that_a_check_refuses_are_replaced():
    model = small_model(small_dags(8))
    free = model.sample(request(12)).dags
    (kind, count), *_ = Counter(int(k) for dag in free for k in dag.x_NA[:, 0]).most_common()[-1:]
    assert count
    result = model.sample(request(12, best_of=8, max_nodes=60, check=Forbidding(kind)))
    whole = [dag for dag, cut in zip(result.dags, result.truncated, strict=True) if not cut]
    assert len(whole) >= 10
    assert kind not in {int(k) for dag in whole for k in dag.x_NA[:, 0]}


def test_a_graph_of_which_no_particle_is_left_is_truncated():
    model = small_model(small_dags(8))
    kinds = range(model.sizes.attributes[0])

    class Nothing(Forbidding):
        def add(self, x_BA, row_X, parent_X, type_X):
            return super().add(x_BA, row_X, parent_X, type_X) & False

    assert all(model.sample(request(3, best_of=4, check=Nothing(kinds[0]))).truncated)
    assert all(model.sample(request(3, check=Nothing(kinds[0]))).truncated)


def test_a_graph_that_may_not_end_where_it_does_is_truncated():
    model = small_model(small_dags(8))
    result = model.sample(request(12, best_of=4, check=Forbidding(-1, least=6)))
    for dag, cut in zip(result.dags, result.truncated, strict=True):
        assert cut or dag.num_nodes >= 6


def test_candidates_are_scored_in_parts_of_whole_graphs(monkeypatch):
    model = small_model(small_dags(8))
    asked = request(6, best_of=3, nodes_B=torch.arange(6) + 4.0)
    scored = []
    score = FastLayerDAG._score

    def watched(self: FastLayerDAG, batch: DAGBatch, part: SampleRequest) -> torch.Tensor:
        scored.append((batch.num_graphs, len(part.seeds)))
        return score(self, batch, part)

    monkeypatch.setattr(FastLayerDAG, "_score", watched)
    whole = model.sample(asked).dags
    monkeypatch.setattr("layerdag.models.best_of._SCORED_NODES", 40)
    parts = model.sample(asked).dags
    assert scored[0] == (18, 6)
    assert len(scored) > 2
    assert sum(graphs for graphs, _ in scored[1:]) == 18
    assert all(graphs == 3 * asked_for for graphs, asked_for in scored)
    assert all(map(same, whole, parts))


SEEDS = np.array([11, 12, 0], dtype=np.uint64)
"""Of two samples and the padding sample."""


def rows(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def filled() -> OutputBuffer:
    """Sample 0 has nodes 5 -> 7, sample 1 node 6 alone; the padding sample is written to, too."""
    output = OutputBuffer(SEEDS)
    output.add_nodes(rows(0, 1), torch.tensor([[5], [6]]), rows(0, 0))
    output.add_nodes(rows(0, 2), torch.tensor([[7], [9]]), rows(1, 1))
    output.add_edges(rows(0, 2), rows(1, 1), rows(2, 2), rows(3, 0))
    return output


def test_every_sample_gets_its_own_nodes_and_edges():
    first, second = filled().result().dags
    assert first.x_NA.tolist() == [[5], [7]]
    assert first.edge_index_2E.tolist() == [[0], [1]]
    assert first.edge_type_E.tolist() == [3]
    assert second.x_NA.tolist() == [[6]]
    assert second.num_edges == 0
    assert [dag.check().layer_N.tolist() for dag in (first, second)] == [[0, 1], [0]]


def test_rows_in_any_order_are_sorted_out():
    output = OutputBuffer(SEEDS)
    output.add_nodes(rows(1, 0), torch.tensor([[6], [5]]), rows(0, 0))
    output.add_nodes(rows(0), torch.tensor([[7]]), rows(1))
    output.add_edges(rows(0), rows(1), rows(2), rows(3))
    for found, wanted in zip(output.result().dags, filled().result().dags, strict=True):
        assert torch.equal(found.x_NA, wanted.x_NA)
        assert torch.equal(found.u_NA, wanted.u_NA)
        assert torch.equal(found.edge_index_2E, wanted.edge_index_2E)


def test_the_truncated_samples_are_told():
    output = filled()
    assert output.result().truncated == (False, False)
    output.truncate(np.array([1]))
    assert output.result().truncated == (False, True)


def test_nothing_at_all_and_a_graph_without_a_node_are_errors():
    with pytest.raises(ValueError, match="no graph has a node, as where every probability is NaN"):
        OutputBuffer(SEEDS).result()
    output = OutputBuffer(SEEDS)
    output.add_nodes(rows(0, 2), torch.tensor([[5], [5]]), rows(0, 0))
    with pytest.raises(ValueError, match="a graph has no node"):
        output.result()


def test_no_two_decisions_about_a_node_take_the_same_uniform():
    pairs = ("LAYER_SIZE", "FIRST_PARENT", "IN_DEGREE", "OUT_DEGREE")
    taken = [RandomSlot[name] + i for name in pairs for i in range(2)]
    # A thousand attributes and 20 000 parents are more than a graph may have.
    taken += [RandomSlot.KIND, *range(RandomSlot.ATTRIBUTE, RandomSlot.ATTRIBUTE + 1000)]
    parents = range(
        RandomSlot.FURTHER_PARENT, RandomSlot.FURTHER_PARENT + 20_000 * SLOTS_PER_PARENT
    )
    assert len(taken) == len(set(taken))
    assert max(taken) < parents.start
    assert parents.stop < RandomSlot.POSITION_IN_BIN


@pytest.mark.parametrize(("weight", "rows"), [(1.0, 2), (1.5, 4)])
def test_only_guidance_has_pairs_of_rows(weight, rows):
    guidance = Guidance(weight, 0.5)
    assert guidance.duplicate(torch.arange(2)).shape[0] == rows
    assert guidance.rows(torch.tensor([1]), 2).tolist() == [1, 3][: rows // 2]
    assert guidance.merge(torch.zeros(rows, 3)).shape == (2, 3)


def test_without_guidance_the_temperature_divides_the_logits():
    logits_RK = torch.tensor([[1.0, 2.0]])
    assert Guidance(1.0, 0.5).merge(logits_RK).tolist() == [[2.0, 4.0]]
