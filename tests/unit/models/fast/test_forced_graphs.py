"""A sampler that must draw one given graph knows of it what training does, and rates it alike."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from small_models import SIZES, collated, request, small_dags, small_model
from torch import Tensor

from layerdag.dag.dag import DAG
from layerdag.dag.neighbors import neighbor_kinds
from layerdag.models.config import ConditioningConfig, HeadsConfig
from layerdag.models.fast import parent_draws, sampling_rounds, tensor_sampler
from layerdag.models.fast.degree_constraints import DegreeConstraints
from layerdag.models.fast.layout import NEVER, BatchLayout, Edges
from layerdag.models.fast.model import GRAPH_OBJECTIVES, FastLayerDAG
from layerdag.models.fast.neighbor_kinds import NATS_PER_VIOLATION, NeighborKinds
from layerdag.models.fast.particles import NATS_PER_FIRST
from layerdag.models.fast.row_encoder import RowEncoder
from layerdag.models.fast.sampling_inputs import NODE_CANDIDATES
from layerdag.models.fast.sampling_rows import GraphRows, Node
from layerdag.models.fast.tensor_sampler import TensorSampler
from layerdag.models.fast.tokens import structural_features

Decision = tuple[int, bool | None]
"""A code, and whether its probability is part of that of the graph; None: of no decision on it, but
the choice of a candidate."""


class Script:
    """The codes that the sampler must draw to build one given graph, in its order of draws.

    Whoever follows it sends the number of codes of the draw before: where there are columns of
    older blocks, a draw among the tokens of one follows, whether one was chosen or not.
    """

    def __init__(self, dag: DAG, block: int, *, plans: bool, weighs: bool) -> None:
        self.dag, self.block, self.plans, self.weighs = dag, block, plans, weighs
        self.layer_N = dag.layers()
        self.sizes_L = torch.bincount(self.layer_N).tolist()
        self.start_L = [sum(self.sizes_L[:layer]) for layer in range(len(self.sizes_L))]
        self.out_degree_N = torch.bincount(dag.edge_index_2E[0], minlength=dag.num_nodes)

    def draws(self) -> Iterator[Decision]:
        for node in range(self.dag.num_nodes):
            yield from self._node(node)
        yield 0, True  # no further layer; what follows is thrown away
        yield from self._parent(self.dag.num_nodes + 1, None)
        yield 0, False
        yield 0, False

    def _node(self, node: int) -> Iterator[Decision]:
        layer, position = int(self.layer_N[node]), node + 1
        yield self.sizes_L[layer], node == self.start_L[layer]
        source_E, target_E = self.dag.edge_index_2E
        types = self.dag.edge_type_E[target_E == node].tolist()
        parents = (source_E[target_E == node] + 1).tolist()
        pairs = sorted(zip(parents, types, strict=True), reverse=True)
        kind, *others = self.dag.x_NA[node].tolist()
        yield from self._parent(position, pairs[0][0] if pairs else None)
        yield kind, True
        yield len(pairs), bool(pairs)
        for rank, (_, edge_type) in enumerate(pairs, start=1):
            yield edge_type, True
            yield from self._parent(position, pairs[rank][0] if rank < len(pairs) else None)
        if self.weighs:
            yield 0, None  # all candidates are the same
        for code in others:
            yield code, True
        if self.plans:
            yield int(self.out_degree_N[node]), True

    def _parent(self, position: int, parent: int | None) -> Iterator[Decision]:
        start = ((position - 1) // self.block - 1) * self.block
        near = parent is None or parent >= start
        column = 0 if parent is None else parent - start
        if parent is not None and not near:
            column = 2 * self.block + parent // self.block
        columns = yield column, parent is not None
        if columns > 2 * self.block:
            yield (0, False) if near or parent is None else (parent % self.block, True)


@dataclass
class Forced:
    """What a sampler knew of the graph that it had to draw.

    Attributes:
        log_likelihood: Nats.
        feature_TF: Structural features of each token.
        graphs: The rows at the end.
        logit_NO: Of each node, the logits by which a candidate of the first row was chosen.
        log_weight_N: The weight of the first row's graph with each node.
    """

    log_likelihood: float
    feature_TF: Tensor
    graphs: GraphRows
    logit_NO: list[Tensor]
    log_weight_N: list[float]


def forced(
    model: FastLayerDAG, dag: DAG, monkeypatch: pytest.MonkeyPatch, particles: int = 1
) -> Forced:
    plans, weighs = model.heads.out_degree is not None, particles > 1
    script = Script(dag, model.block, plans=plans, weighs=weighs).draws()
    total, columns, features, logits, weights = 0.0, None, [], [], []
    encode = RowEncoder.encode

    def follow(logits_XK: Tensor, uniform: Tensor) -> Tensor:
        nonlocal total, columns
        code, counts = script.send(columns)
        columns = logits_XK.shape[1]
        if counts is None:
            logits.append(logits_XK[0])
            weights.append(float(sampler.rounds.graphs.log_weight_B[0]))
        if counts:
            total += torch.log_softmax(logits_XK.double(), dim=1)[0, code].item()
        return torch.full(uniform.shape, code)

    def watched(encoder: RowEncoder) -> Tensor:
        features.append(encoder.graphs.feature_BF[0].clone())
        return encode(encoder)

    one, nodes = collated([dag]), dag.num_nodes
    sizes = {"nodes_B": torch.tensor([float(nodes)]), "layers_B": one.num_layers().float()}
    given = {"numeric_BC": one.numeric_BC, "category_BM": one.category_BM} | sizes
    repeated = {name: value.repeat_interleave(particles, 0) for name, value in given.items()}
    asked = request(particles, **repeated, max_nodes=60, best_of=particles)
    with monkeypatch.context() as patch, torch.inference_mode():
        for part in (sampling_rounds, parent_draws):
            patch.setattr(part, "sample_if_possible", follow)
        patch.setattr(tensor_sampler, "PARENTS_PER_ROUND", nodes)
        patch.setattr(tensor_sampler, "INTERVAL", 1000)  # particles keep their weights
        patch.setattr(RowEncoder, "encode", watched)
        patch.setattr(DegreeConstraints, "limit_kinds", lambda self, logits, first: logits)
        patch.setattr(DegreeConstraints, "limit_degrees", lambda self, logits, *rest: logits)
        patch.setattr(DegreeConstraints, "clamp", lambda self, degree, *rest: degree)
        limits, room = model.constraints.max_parents_K, torch.full_like
        patch.setitem(model.constraints._buffers, "max_parents_K", room(limits, nodes))
        patch.setattr(DegreeConstraints, "capacity", lambda self, kind, out: room(kind, nodes))
        sampler = TensorSampler(model, asked)
        (drawn, *_) = sampler.run().dags
    assert next(script, None) is None
    assert torch.equal(drawn.x_NA, dag.x_NA)
    assert sorted(drawn.edge_index_2E.T.tolist()) == sorted(dag.edge_index_2E.T.tolist())
    return Forced(total, torch.stack(features), sampler.rounds.graphs, logits, weights)


@pytest.mark.parametrize(
    ("block", "plans", "chosen", "remaining"),
    [
        *((block, plans, "last", "none") for block in (2, 4, 64) for plans in (True, False)),
        (4, False, "all", "none"),
        (4, False, "last", "encoded"),
    ],
)
def test_the_sampler_gives_a_graph_the_probability_that_training_computes(
    block, plans, chosen, remaining, monkeypatch
):
    dags = small_dags(count=9)
    model = small_model(
        dags,
        block=block,
        predict_out_degree=plans,
        heads=HeadsConfig(chosen_parents=chosen),
        conditioning=ConditioningConfig(remaining_sizes=remaining),
    )
    losses = model.losses(collated(dags[-1:]), torch.Generator())
    trained = -sum(losses[name].total.item() for name in GRAPH_OBJECTIVES)
    found = forced(model, dags[-1], monkeypatch)
    assert found.log_likelihood == pytest.approx(trained, rel=1e-5)


@pytest.mark.parametrize("plans", [True, False])
def test_the_features_of_each_token_are_those_of_training(plans, monkeypatch):
    dags = small_dags(3)
    model = small_model(dags, predict_out_degree=plans)
    for dag in dags:
        batch = collated([dag])
        layout = BatchLayout.from_batch(batch)
        edges = Edges.from_batch(batch, layout)
        wanted = structural_features(layout, edges, edges.out_degree_T * plans)
        found = forced(model, dag, monkeypatch).feature_TF
        assert found.tolist() == wanted.tolist()


def test_uses_and_room_of_every_node_are_kept(monkeypatch):
    dags = small_dags(3)
    dag = dags[-1]
    graphs = forced(small_model(dags), dag, monkeypatch).graphs
    source, target = dag.edge_index_2E
    children = [target[source == node] + 1 for node in range(dag.num_nodes)]
    node_NF = graphs.node_BTF[0, 1 : dag.num_nodes + 1]
    used_N = torch.tensor([len(c) for c in children])
    assert node_NF[:, Node.USED].tolist() == used_N.tolist()
    assert node_NF[:, Node.OUT_DEGREE].tolist() == used_N.tolist()
    assert node_NF[:, Node.ROOM].tolist() == (dag.num_nodes - used_N).tolist()
    last = [int(c.max()) if len(c) else NEVER for c in children]
    assert node_NF[:, Node.LAST].tolist() == last
    assert node_NF[:, Node.LAYER].tolist() == dag.layers().tolist()


def with_lists(model: FastLayerDAG, dags: list[DAG]) -> FastLayerDAG:
    parents, children = neighbor_kinds(dags, SIZES.attributes[0], 1)
    statistics = replace(model.statistics, parents=parents, children=children)
    model.neighbors = NeighborKinds(statistics)
    return model


@cache
def ancestry(dag: DAG, node: int, radius: int) -> tuple[object, ...]:
    """Return kind and parents' ancestries, written out."""
    source_E, target_E = dag.edge_index_2E
    parents = source_E[target_E == node].tolist() if radius else []
    return (int(dag.x_NA[node, 0]), *sorted(ancestry(dag, p, radius - 1) for p in parents))


@pytest.mark.parametrize("seed", range(4))
def test_ancestries_are_known_again_by_their_hashes(seed, monkeypatch):
    (dag,) = small_dags(1, seed=seed)
    dag.x_NA[:, 0] %= 2
    known = small_dags(2)
    model = with_lists(small_model(known), known)
    found = forced(model, dag, monkeypatch, particles=2)
    hash_N = found.graphs.ancestry_BT[0, 1 : dag.num_nodes + 1].tolist()
    written = [ancestry(dag, node, 2) for node in range(dag.num_nodes)]
    assert [hash_N.index(one) for one in hash_N] == [written.index(one) for one in written]
    assert len(set(hash_N)) < dag.num_nodes  # something occurs twice, or nothing was tested
    # A candidate costs more if no earlier node has its ancestry, which is part of no weight.
    before = [0.0, *found.log_weight_N[:-1]]
    for node, logit_O in enumerate(found.logit_NO):
        of_node = found.log_weight_N[node] - before[node]
        is_first = written.index(written[node]) == node
        assert logit_O.tolist() == pytest.approx(
            [of_node - NATS_PER_FIRST * is_first] * NODE_CANDIDATES, abs=1e-4
        )


def test_graphs_are_weighed_as_when_they_are_finished(monkeypatch):
    """All but those of nodes that lack children, which only the end shows."""
    dags, known = small_dags(6, seed=3), small_dags(2)
    model = with_lists(small_model(known), known)
    weights = []
    for dag in dags:
        graphs = forced(model, dag, monkeypatch, particles=2).graphs
        state_N = graphs.node_BTF[0, 1 : dag.num_nodes + 1, Node.CHILDREN]
        final_N = model.neighbors.of_children.final_R[state_N]
        lacking = int(((state_N > 1) & ~final_N).sum())
        weights.append(float(graphs.log_weight_B[0]) - NATS_PER_VIOLATION * lacking)
        whole = float(model.neighbors.log_weight(collated([dag])))
        assert weights[-1] == pytest.approx(whole, abs=1e-4)
    assert min(weights) < max(weights)
