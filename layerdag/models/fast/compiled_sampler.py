"""A sampler whose steps are in C between matrix products: on a processor.

It draws what ``TensorSampler`` draws, by the same uniforms. A node needs hundreds of small
operations, each of which costs torch more to start than to run; here candidates that agree so far
are computed once, and rows that lack nothing are passed over.

All graphs of a request are at the same position, so that memory is sliced and never padded. The row
of a finished graph is assigned to the padding sample, which is dropped, until enough rows are
inactive that compacting the memory pays off.

Under guidance a graph has two rows of the encoder, its passes, and so has a group of candidates.

Shape letters: A node attributes, B graphs, D width of a state, E edges, F feature columns, J
position buckets, K codes, R rows, X selected graphs.
"""

import ctypes
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.models.base import SampleRequest, SampleResult
from layerdag.models.draws import sample_from_logits, slot_uniforms
from layerdag.models.fast.decisions import Readout
from layerdag.models.fast.encoder import EncoderBlock, WindowEncoder, has_own_positions
from layerdag.models.fast.networks import FastNetworks
from layerdag.models.fast.particles import INTERVAL, resampled_rows
from layerdag.models.fast.sampling_inputs import RandomSlot, SamplingTask
from layerdag.models.fast.sampling_kernels import RowMemory
from layerdag.models.fast.sampling_output import OutputBuffer
from layerdag.models.fast.tokens import FRACTIONS, OCTAVES, Feature
from layerdag.models.layers import LinearMap

_ACTIVE_FRACTION = 0.8
"""Share of rows still drawn at which memory is compacted."""


@dataclass(frozen=True, eq=False)
class ActivatedMap:
    """A readout: normalization, GELU, linear maps."""

    scale_D: Float[Tensor, " D"]  # of the normalization
    linear: LinearMap  # the maps

    @classmethod
    def of(cls, readout: Readout) -> "ActivatedMap":
        """Return the readout of a module."""
        return cls(readout.norm.weight.detach(), LinearMap.of(readout.project))


@dataclass(frozen=True, eq=False)
class _EncoderLayer:
    """The maps of an encoder block."""

    scale_D: Float[Tensor, " D"]  # of the normalization before attention
    query_key_value: LinearMap
    mix: LinearMap  # of what attention and messages bring
    feed_scale_D: Float[Tensor, " D"]  # of the normalization before the feed-forward network
    widen: LinearMap
    narrow: LinearMap

    @classmethod
    def of(cls, block: EncoderBlock) -> "_EncoderLayer":
        norm, widen, _, narrow = block.feed
        return cls(
            block.norm.weight.detach(),
            LinearMap.of(block.query_key_value),
            LinearMap.of(block.mix),
            cast(nn.LayerNorm, norm).weight.detach(),
            LinearMap.of(cast(nn.Linear, widen)),
            LinearMap.of(cast(nn.Linear, narrow)),
        )


@final
class CompiledSampler:
    """Draws nodes by kernels in C.

    Consecutive ``request.best_of`` graphs are the particles of one graph.
    """

    def __init__(self, modules: FastNetworks, request: SampleRequest) -> None:
        self.modules, self.request = modules, request
        self.rows = len(request.seeds)
        task = SamplingTask.of(modules, request)
        self.seed_B, self.weighs, self.guidance = task.seed_B, task.weighs, task.guidance
        self.padding_sample, self.sample_B = self.rows, np.arange(self.rows)
        # Passes of a row follow each other here.
        row_R = torch.arange(self.guidance.passes * self.rows)
        self.vectors = task.vectors.select(row_R.view(-1, self.rows).T.flatten())
        self.encoded_RD = self.vectors.after_BJD[:, 0]
        self.masks, self.output = task.masks, OutputBuffer(self.seed_B)
        self.check, self.valid_B = request.check, np.ones(self.rows, dtype=bool)
        if self.check is not None:
            self.check.start(self.rows)
        self._memory = RowMemory(task)
        assert isinstance(modules.encoder, WindowEncoder)
        self._layers = [_EncoderLayer.of(block) for block in modules.encoder.encoder_blocks]
        heads, pointer = modules.heads, modules.heads.pointer
        # What is linear in a parent is computed once: its key, and what it adds to states.
        of_parents = [pointer.key, heads.first_parent, heads.last_parent, heads.all_parents]
        of_parents += [] if heads.chosen_parents is None else [heads.chosen_parents]
        self._last_scale_D = modules.last_norm.weight.detach()
        self._of_parents, self._context = LinearMap.of(*of_parents), LinearMap.of(heads.context)
        self._pointer = ActivatedMap(
            pointer.norm.weight.detach(),
            LinearMap.of(
                pointer.query, pointer.far_query, pointer.code_scores, pointer.block_scores
            ),
        )
        self._size, self._kind, self._degree, self._type = map(
            ActivatedMap.of,
            (heads.size_readout, heads.kind_readout, heads.degree_readout, heads.type_readout),
        )
        self._others = [ActivatedMap.of(cast(Readout, each)) for each in heads.other_readouts]
        # States of groups: by first parent and kind, after a parent, and sums of chosen parents.
        shape = (self.rows * task.options * self.guidance.passes, self.encoded_RD.shape[1])
        self._states = [torch.empty(shape) for _ in range(5)]
        self._activated_RD = torch.empty(shape)
        self._x_BA = modules.tokens.start_A.expand(self.rows, -1).contiguous()
        nothing = torch.zeros(0, dtype=torch.int64)
        self._newest = (nothing, nothing, nothing)  # edges to the newest nodes: row, parent, type

    @staticmethod
    def supports(modules: FastNetworks) -> bool:
        """Return whether it can sample with a model: not with an encoder of a user's own."""
        weight, own = modules.tokens.embedding.weight, not has_own_positions(modules.encoder)
        return weight.device.type == "cpu" and weight.dtype == torch.float32 and not own

    def run(self) -> SampleResult:
        """Sample every graph to its end and return them in the order of the request."""
        position = 0
        while self.rows:
            self.encoded_RD = self._encode(position)
            due = not self.valid_B.all() or (self.weighs and position % INTERVAL == 0)
            if position and due and self.request.best_of > 1:
                self._resample(position)
            position += 1
            self._start_nodes(position)
            if self.rows:
                self._add_nodes(position)
        return self.output.result()

    def _call(self, kernel: str, *arguments: Any) -> int:
        return self._memory.call(kernel, self.sample_B, *arguments)

    def _read(self, readout: ActivatedMap, state_RD: Tensor, groups: int) -> Tensor:
        states = groups * self.guidance.passes
        self._call("activate", states, state_RD, readout.scale_D, self._activated_RD)
        return readout.linear(self._activated_RD[:states])

    def _encode(self, position: int) -> Float[Tensor, "R D"]:
        modules = self.modules
        self._memory.go_to(position)
        bucket = bisect_right(modules.conditions.position_buckets, position)
        before_RD, after_RD = self.vectors.before_BJD[:, bucket], self.vectors.after_BJD[:, bucket]
        if modules.remaining is not None:
            remaining_RD = modules.remaining.lift(self._remaining_sizes()).chunk(2, dim=1)
            before_RD, after_RD = before_RD + remaining_RD[0], after_RD + remaining_RD[1]
        x_RD, rows = torch.empty_like(self.encoded_RD), self.encoded_RD.shape[0]
        self._call("embed", self._x_BA, x_RD)
        x_RD += before_RD
        normed_RD = self._activated_RD[:rows]
        for layer, memory in zip(self._layers, self._memory.layers, strict=True):
            x_RD = self._encoder_block(x_RD, layer, ctypes.addressof(memory))
        self._call("normalize", rows, x_RD, self._last_scale_D, normed_RD)
        encoded_RD = normed_RD + after_RD
        self._call("append", self._of_parents(encoded_RD))
        return encoded_RD

    def _encoder_block(self, x_RD: Tensor, layer: "_EncoderLayer", memory: int) -> Tensor:
        """Return the next states of newest tokens, which are written over."""
        rows, normed_RD = x_RD.shape[0], torch.empty_like(x_RD)
        read_RD = torch.empty(rows, 2 * x_RD.shape[1])  # attended, and from the parents
        row_X, parent_X, _ = self._newest
        self._call("normalize", rows, x_RD, layer.scale_D, normed_RD)
        projected_RK = layer.query_key_value(normed_RD)
        self._call("attend", memory, projected_RK, row_X.shape[0], row_X, parent_X, read_RD)
        x_RD = x_RD.addmm_(read_RD, layer.mix.weight_DK)
        self._call("normalize", rows, x_RD, layer.feed_scale_D, normed_RD)
        wide_RK = layer.widen(normed_RD)
        self._call("gelu", wide_RK.numel(), wide_RK)
        return x_RD.addmm_(wide_RK, layer.narrow.weight_DK).add_(layer.narrow.bias_K)

    def _remaining_sizes(self) -> Float[Tensor, "R F"]:
        remaining = self.modules.remaining
        assert remaining is not None
        features_RF = torch.empty(self.encoded_RD.shape[0], remaining.lift.in_features)
        self._call(
            "remaining",
            self.vectors.sizes_B2.contiguous(),
            remaining.octave_F.shape[0],
            OCTAVES,
            remaining.fraction_F.shape[0],
            FRACTIONS,
            features_RF,
        )
        return features_RF

    def _add_nodes(self, position: int) -> None:
        heads = self.modules.heads
        first_RD, kind_RD, after_RD, sum_RD, other_RD = self._states
        context_RD = self._context(self.encoded_RD)
        self._call("add_place", context_RD)
        scores_RK = self._read(self._pointer, context_RD, self.rows)
        groups = self._call("first_parents", scores_RK, context_RD, first_RD)
        groups = self._call("kinds", self._read(self._kind, first_RD, groups), first_RD, kind_RD)
        edges = self._call("in_degrees", self._read(self._degree, kind_RD, groups))
        self._memory.reserve_edges(edges)
        groups, rank = self._call("start_parents", kind_RD, sum_RD, after_RD), 0
        while groups:
            logits_RK = self._read(self._type, after_RD, groups)
            groups = self._call("edge_types", rank, logits_RK, after_RD, sum_RD)
            if groups:
                rank += 1
                scores_RK = self._read(self._pointer, after_RD, groups)
                groups = self._call(
                    "further_parents", rank, scores_RK, kind_RD, sum_RD, other_RD, after_RD
                )
                sum_RD, other_RD = other_RD, sum_RD
        state_RD = first_RD[: self.rows * self.guidance.passes]
        edge_3E = torch.empty(3, edges, dtype=torch.int64)
        x_BA = torch.empty_like(self._x_BA[: self.rows])
        allowed_BF = torch.empty(self.rows, self.masks.pairs_FF.shape[0], dtype=torch.bool)
        kept = self._call("choose", kind_RD, x_BA, allowed_BF, state_RD, *edge_3E)
        for index, readout in enumerate(self._others, start=1):
            chained = index <= heads.num_chained
            table = heads.other_embeddings[index - 1].weight if chained else None
            logits_RK = self._read(readout, state_RD, self.rows)
            self._call("attribute", index, logits_RK, table, x_BA, allowed_BF, state_RD)
        out_degree_B = self._out_degrees(position, state_RD, x_BA[:, 0])
        row_X, parent_X, type_X = edge_3E[:, :kept]
        self._x_BA, self._newest = x_BA, (row_X, parent_X, type_X)
        self._finish_nodes(position, x_BA, out_degree_B)

    def _resample(self, position: int) -> None:
        particles, row_X = self.request.best_of, self._due_rows(position)
        log_weight_B = np.zeros(self.rows)
        if self.weighs:
            log_weight_B = self._memory.log_weight_B[: self.rows]
        source_X = resampled_rows(
            self.sample_B[row_X],
            np.where(self.valid_B, log_weight_B, -np.inf)[row_X],
            particles,
            self.seed_B[:-1:particles],
            np.full(row_X.shape[0], position),
        )
        if self.weighs:
            log_weight_B[row_X] = 0.0
        source_B = np.arange(self.rows)
        source_B[row_X] = row_X[source_X]
        if not np.array_equal(row_X[source_X], row_X):
            self.output.branch(self.sample_B[row_X], self.sample_B[source_B[row_X]])
            self._select(source_B)

    def _due_rows(self, position: int) -> Int[np.ndarray, " X"]:
        """Return the rows of the graphs that are resampled now.

        Between the intervals, these are the graphs of which a particle became invalid: a graph does
        not depend on those that are drawn beside it.
        """
        active_B = self.sample_B < self.padding_sample
        if not self.weighs or position % INTERVAL:
            graph_B = self.sample_B // self.request.best_of
            active_B &= np.isin(graph_B, graph_B[~self.valid_B])
        return np.flatnonzero(active_B)

    def _select(self, row_B: Int[np.ndarray, " B"]) -> None:
        self._memory.select(row_B)
        index_B, passes = torch.from_numpy(row_B), self.guidance.passes
        row_R = (index_B[:, None] * passes + torch.arange(passes)).flatten()
        if row_B.shape[0] < self.rows:  # particles of a graph have the same conditions
            self.vectors = self.vectors.select(row_R)
        self.encoded_RD, self.valid_B = self.encoded_RD[row_R], self.valid_B[row_B]
        if self.check is not None:
            self.check.select(index_B)

    def _start_nodes(self, position: int) -> None:
        self._memory.go_to(position)
        size_B = np.empty(self.rows, dtype=np.int64)
        logits_RK = self._read(self._size, self.encoded_RD, self.rows)
        self._call("sizes", logits_RK, 0, size_B)
        features_BF = self._memory.features_BF[: self.rows]
        number_B = features_BF[:, Feature.LAYER] + int(position > 1)
        complete_B = features_BF[:, Feature.LEFT] == 0
        ended_B = complete_B & (size_B == 0)
        too_deep_B = complete_B & (number_B >= self.request.max_layers)
        truncated_B = (too_deep_B | (position > self.request.max_nodes)) & ~ended_B
        if self.check is not None:
            truncated_B |= ~self.valid_B | (ended_B & ~self.check.may_end().numpy())
        self.output.truncate(self.sample_B[truncated_B])
        self.sample_B = np.where(ended_B | truncated_B, self.padding_sample, self.sample_B)
        size_B = size_B.clip(min=1)
        keep_X = np.flatnonzero(self.sample_B < self.padding_sample)
        if keep_X.shape[0] <= _ACTIVE_FRACTION * self.rows:
            self._select(keep_X)
            self.sample_B, size_B = self.sample_B[keep_X], size_B[keep_X]
            self.rows = keep_X.shape[0]
        self._call("start_nodes", size_B)

    def _finish_nodes(self, position: int, x_BA: Tensor, out_degree_B: Tensor) -> None:
        """Set the children of the newest node of every graph, check it and put it out."""
        (row_X, parent_X, type_X), constraints = self._newest, self.modules.constraints
        predicted = self.modules.heads.out_degree is not None
        capacity_B = constraints.capacity(x_BA[:, 0], out_degree_B if predicted else None)
        self._call("set_out_degrees", out_degree_B, capacity_B)
        if self.check is not None:
            valid_B = self.check.add(x_BA, row_X, parent_X - 1, type_X).numpy()
            self.valid_B = (self.valid_B & valid_B) | (self.sample_B == self.padding_sample)
        sample_B = torch.from_numpy(self.sample_B)
        layer_B = torch.from_numpy(self._memory.features_BF[: self.rows, Feature.LAYER].copy())
        self.output.add_nodes(sample_B, x_BA, layer_B)
        child_X = torch.full_like(parent_X, position)
        self.output.add_edges(sample_B[row_X], parent_X, child_X, type_X)

    def _out_degrees(self, position: int, state_RD: Tensor, kind_B: Tensor) -> Tensor:
        """Sample the out-degree of each node; 0 in a model without out-degree prediction."""
        heads = self.modules.heads
        if heads.out_degree is None or heads.plan_readout is None:
            return torch.zeros_like(kind_B)
        passes = self.guidance.passes
        logits_RK = heads.plan_readout(state_RD).unflatten(0, (-1, passes)).transpose(0, 1)
        logits_BK = self.guidance.merge(logits_RK.flatten(0, 1))
        slot, seed_B = int(RandomSlot.OUT_DEGREE), self.seed_B[self.sample_B]
        u_B2 = slot_uniforms(seed_B, np.full(self.rows, position), range(slot, slot + 2))
        return heads.out_degree.decode(sample_from_logits(logits_BK, u_B2[:, 0]), u_B2[:, 1])
