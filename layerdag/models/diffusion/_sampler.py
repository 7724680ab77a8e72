"""Sampling from the reference model: layer by layer, all graphs of a request at once.

Loops run over layers and denoising steps only. Every graph has its own stream of uniforms, and the
networks compute in double precision unless the model's ``sampling_precision`` says otherwise: the
last bits of a matrix product depend on the size of the batch, and in single precision they now and
then tip a draw, so that a graph depends on its batch mates.
"""

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from layerdag._runtime import wait_briefly
from layerdag.models import SampleRequest, SampleResult, Segments, segment_pointers, segment_ranges
from layerdag.models.diffusion._conditioning import Conditions
from layerdag.models.diffusion._edge_denoiser import EdgeDenoiser, Pairs
from layerdag.models.diffusion._encoder import Partial
from layerdag.models.diffusion._growing import GrowingGraphs, NewLayer
from layerdag.models.diffusion.process import (
    SampleStreams,
    choose_with_one_of,
    draw,
    gumbel,
    reverse_distribution,
    strided_times,
)

if TYPE_CHECKING:
    from layerdag.models.diffusion._model import ReferenceLayerDAG

PRECISIONS = {"float64": torch.float64, "float32": torch.float32}


@torch.no_grad()
def sample(model: "ReferenceLayerDAG", request: SampleRequest) -> SampleResult:
    """Sample one graph per seed.

    Acyclic and layer-consistent by construction: edges lead from earlier layers to a new one, and
    every node beyond layer 0 has a parent in the layer right before its own.
    """
    wait_briefly()
    device = next(model.parameters()).device
    sampler = _Sampler(sampling_copy(model), request, device)
    while sampler.active_B.any():
        sampler.grow()
    return sampler.result()


def sampling_copy(model: "ReferenceLayerDAG") -> "ReferenceLayerDAG":
    """Return a copy of the model in evaluation mode and in the precision of its sampling."""
    return copy.deepcopy(model).to(PRECISIONS[model.sampling_precision]).eval()


@dataclass(frozen=True, eq=False)
class _View:
    """The graphs that still grow, as items of the networks.

    Attributes:
        partial: Their nodes and edges.
        node_R: Node behind each row, numbered through all graphs.
        given: Their conditions, by guidance pass.
    """

    partial: Partial
    node_R: Tensor
    given: tuple[Conditions, ...]


class _Sampler:
    """The state of one request."""

    def __init__(
        self, model: "ReferenceLayerDAG", request: SampleRequest, device: torch.device
    ) -> None:
        self.model, self.request, self.device = model, request, device
        graphs = len(request.seeds)
        self.columns = len(model.node.marginal_AK)
        self.streams = SampleStreams(request.seeds, device)
        self.graphs = GrowingGraphs(self.columns, device)
        self.active_B = torch.ones(graphs, dtype=torch.bool, device=device)
        self.truncated_B = torch.zeros_like(self.active_B)
        self.nodes_B = torch.zeros(graphs, dtype=torch.int64, device=device)
        self.given = Conditions(
            request.numeric_BC.to(device, PRECISIONS[model.sampling_precision]),
            request.category_BM.to(device),
        )

    def grow(self) -> None:
        """Draw one more layer of every graph that still grows."""
        view = self._view()
        size_I = self._sizes(view)
        if not self.active_B.any():
            return
        view, size_I = self._view(), size_I[size_I > 0]
        code_WA, ptr = self._attributes(view, size_I)
        graph_W = torch.repeat_interleave(view.partial.graph_I, size_I)
        if self.graphs.depth == 0:
            none = size_I.new_zeros(0)
            code_WA[:, -1] = 0
            self.graphs.append(NewLayer(graph_W, code_WA, none, none, none))
        else:
            self._append_with_edges(view, code_WA, graph_W, ptr)
        self.nodes_B += torch.bincount(graph_W, minlength=self.nodes_B.numel())
        self.active_B &= ~self.truncated_B

    def result(self) -> SampleResult:
        """Return the finished graphs."""
        attributes = self.columns - 1
        uniform = self.streams.draw(self.nodes_B * attributes)
        # Rounding to single precision must not reach 1.
        u_NA = uniform.float().clamp(max=1 - 2.0**-24).reshape(-1, attributes)
        dags = self.graphs.finished(u_NA, self.nodes_B.numel())
        return SampleResult(tuple(dags), tuple(self.truncated_B.tolist()))

    def _view(self) -> _View:
        """Return the graphs that still grow, with their conditions."""
        graphs = self.graphs
        graph_I = torch.nonzero(self.active_B).squeeze(1)
        item_B = self.active_B.cumsum(0) - 1
        node_R = torch.nonzero(self.active_B[graphs.graph_N]).squeeze(1)
        row_N = torch.zeros_like(graphs.graph_N)
        row_N[node_R] = torch.arange(node_R.numel(), device=self.device)
        edge_P = torch.nonzero(self.active_B[graphs.graph_N[graphs.edge_index_2E[1]]]).squeeze(1)
        graph_R = graphs.graph_N[node_R]
        partial = Partial(
            code_NA=graphs.code_NA[node_R],
            graph_N=graph_R,
            node_R=torch.arange(node_R.numel(), device=self.device),
            item_R=item_B[graph_R],
            age_R=graphs.depth - graphs.layer_N[node_R],
            graph_I=graph_I,
            depth_I=torch.full_like(graph_I, graphs.depth),
            edge_index_2P=row_N[graphs.edge_index_2E[:, edge_P]],
            edge_kind_P=graphs.edge_type_E[edge_P],
        )
        plain = self.request.guidance == 1.0
        given = (self.given,) if plain else (self.given, self.given.unknown())
        return _View(partial, node_R, given)

    def _guided(self, view: _View, predict: Callable[[Conditions], Tensor]) -> Tensor:
        """Return logits pushed away from the unconditional ones (arXiv 2207.12598, eq. 6)."""
        logits = [predict(given) for given in view.given]
        if len(logits) == 1:
            return logits[0]
        conditional, plain = logits
        pushed = plain + self.request.guidance * (conditional - plain)
        # A code that does not exist has minus infinity in both, and their difference is undefined.
        return torch.where(conditional.isinf(), conditional, pushed)

    def _draw(self, view: _View, count_I: Tensor) -> Tensor:
        """Return the next ``count_I`` uniforms of the stream of each graph that still grows."""
        count_B = torch.zeros_like(self.nodes_B)
        count_B[view.partial.graph_I] = count_I
        return self.streams.draw(count_B)

    def _sizes(self, view: _View) -> Tensor:
        """Draw the sizes of the next layers, end graphs, and hold to the limits of the request."""
        partial, request = view.partial, self.request
        logits_IS = self._guided(view, lambda given: self.model.layer_size(partial, given))
        if self.graphs.depth == 0:
            logits_IS[:, 0] = float("-inf")
        uniform_I2 = self._draw(view, torch.full_like(partial.graph_I, 2)).reshape(-1, 2)
        wanted_I = self.model.layer_size.draw(logits_IS, uniform_I2)
        room_I = request.max_nodes - self.nodes_B[partial.graph_I]
        if self.graphs.depth >= request.max_layers:
            room_I = torch.zeros_like(room_I)
        size_I = torch.minimum(wanted_I, room_I)
        self.truncated_B[partial.graph_I] = size_I < wanted_I
        self.active_B[partial.graph_I] = size_I > 0
        return size_I

    def _attributes(self, view: _View, size_I: Tensor) -> tuple[Tensor, Tensor]:
        """Draw the codes of the new nodes; return (codes with in-degree, pointers by item)."""
        node, columns = self.model.node, self.columns
        segments = Segments.of(segment_pointers(size_I))
        states = {id(given): node.encoder(view.partial, given) for given in view.given}
        times = strided_times(node.steps, self.request.steps)
        time_TF = node.times(torch.tensor(times, device=self.device))
        uniform_R = self._draw(view, size_I * columns * len(times))
        uniform_WTA = uniform_R.reshape(-1, len(times), columns)
        code_WA = draw(node.marginal_AK.expand(len(uniform_WTA), -1, -1), uniform_WTA[:, 0])
        for step, (now, then) in enumerate(itertools.pairwise(times)):

            def predict(given: Conditions, code_WA: Tensor = code_WA, step: int = step) -> Tensor:
                return node(states[id(given)] + time_TF[step], code_WA, segments)

            weights_WAK = reverse_distribution(
                self._guided(view, predict).softmax(-1),
                code_WA,
                node.marginal_AK,
                node.keep_T[now],
                node.keep_T[then],
            )
            code_WA = draw(weights_WAK, uniform_WTA[:, step + 1])
        return code_WA, segments.ptr

    def _append_with_edges(
        self, view: _View, code_WA: Tensor, graph_W: Tensor, ptr: Tensor
    ) -> None:
        """Draw the edges into the new nodes and append the layer."""
        # There cannot be more parents than earlier nodes, nor none beyond layer 0.
        earlier_I = torch.bincount(view.partial.item_R, minlength=ptr.numel() - 1)
        wanted_W = self.model.degrees.decode(code_WA[:, -1]).clamp(min=1)
        most_W = torch.repeat_interleave(earlier_I, ptr.diff())
        in_degree_W = torch.minimum(wanted_W, most_W)
        code_WA[:, -1] = self.model.degrees.encode(in_degree_W)
        partial, pairs = _with_new_nodes(view.partial, code_WA, in_degree_W, ptr)
        state_Q = self._edges(view, partial, pairs)
        chosen_Q = state_Q > 0
        source_P = view.node_R[pairs.source_Q[chosen_Q]]
        types_P = state_Q[chosen_Q] - 1
        self.graphs.append(NewLayer(graph_W, code_WA, source_P, pairs.new_Q[chosen_Q], types_P))

    def _edges(self, view: _View, partial: Partial, pairs: Pairs) -> Tensor:
        """Return the drawn state of each pair: exactly the in-degree of each node is on."""
        edge = self.model.edge
        per_item_I = torch.bincount(pairs.item_Q, minlength=partial.graph_I.numel())
        marginal_QK = edge.marginals(pairs)[pairs.new_Q]
        state_Q = draw(marginal_QK, self._draw(view, per_item_I))
        times = strided_times(edge.steps, self.request.steps)
        for now, then in itertools.pairwise(times):
            time_I = torch.full_like(partial.graph_I, now)

            def predict(
                given: Conditions, state_Q: Tensor = state_Q, time_I: Tensor = time_I
            ) -> Tensor:
                return edge(partial, given, pairs, state_Q, time_I)

            uniform_Q3 = self._draw(view, 3 * per_item_I).reshape(-1, 3)
            clean_Q = draw_parents(self._guided(view, predict), pairs, uniform_Q3[:, :2])
            state_Q = _posterior(edge, clean_Q, state_Q, marginal_QK, (now, then), uniform_Q3[:, 2])
        return state_Q


def draw_parents(logits_QK: Tensor, pairs: Pairs, uniform_Q2: Tensor) -> Tensor:
    """Draw the clean states of all pairs jointly: the parents of each new node.

    Independent draws of pairs give an unsure node no parent or two. Here a node gets exactly its
    in-degree of parents without replacement, in proportion to their odds of being one, and the
    first of them lies in the layer right before, which is what makes the new layer a layer.

    Args:
        logits_QK: Logits of no edge and of each edge type.
        pairs: The candidates.
        uniform_Q2: In (0, 1); one picks the parents, one the edge type.

    Returns:
        int64 states, 0 for no edge, shape (Q,).
    """
    odds_Q = logits_QK[:, 1:].logsumexp(-1) - logits_QK[:, 0]
    key_Q = odds_Q + gumbel(uniform_Q2[:, 0])
    chosen_Q = choose_with_one_of(key_Q, pairs.new_Q, pairs.in_degree_W, pairs.latest_Q)
    type_Q = draw(logits_QK[:, 1:].softmax(-1), uniform_Q2[:, 1])
    return torch.where(chosen_Q, type_Q + 1, 0)


def _posterior(
    edge: EdgeDenoiser,
    clean_Q: Tensor,
    noisy_Q: Tensor,
    marginal_QK: Tensor,
    times: tuple[int, int],
    uniform_Q: Tensor,
) -> Tensor:
    """Draw the states at the later of two times given the clean and the noisier ones."""
    now, then = times
    known_QK = torch.nn.functional.one_hot(clean_Q, marginal_QK.shape[1]).to(marginal_QK)
    weights_QK = reverse_distribution(
        known_QK, noisy_Q, marginal_QK, edge.keep_T[now], edge.keep_T[then]
    )
    return draw(weights_QK, uniform_Q)


def _with_new_nodes(
    prefix: Partial, code_WA: Tensor, in_degree_W: Tensor, ptr: Tensor
) -> tuple[Partial, Pairs]:
    """Return the prefixes with the new nodes behind all their rows, and the candidate edges."""
    items, rows = prefix.graph_I.numel(), prefix.node_R.numel()
    item_W, new_W = segment_ranges(ptr[:-1], ptr.diff())
    order_R = torch.argsort(prefix.item_R, stable=True)
    size_I = torch.bincount(prefix.item_R, minlength=items)
    first_I = size_I.cumsum(0) - size_I
    candidates_W = size_I[item_W]
    new_Q, place_Q = segment_ranges(first_I[item_W], candidates_W)
    source_Q = order_R[place_Q]
    row_W = rows + new_W
    partial = Partial(
        code_NA=torch.cat([prefix.code_NA, code_WA]),
        graph_N=torch.cat([prefix.graph_N, prefix.graph_I[item_W]]),
        node_R=torch.cat([prefix.node_R, row_W]),
        item_R=torch.cat([prefix.item_R, item_W]),
        age_R=torch.cat([prefix.age_R, torch.zeros_like(row_W)]),
        graph_I=prefix.graph_I,
        depth_I=prefix.depth_I,
        edge_index_2P=prefix.edge_index_2P,
        edge_kind_P=prefix.edge_kind_P,
    )
    pairs = Pairs(
        source_Q=source_Q,
        target_Q=row_W[new_Q],
        new_Q=new_Q,
        item_Q=item_W[new_Q],
        latest_Q=prefix.age_R[source_Q] == 1,
        in_degree_W=in_degree_W,
        candidates_W=candidates_W,
    )
    return partial, pairs
