"""A sampler whose steps are in C between matrix products: on a processor, without guidance.

It draws what ``TensorSampler`` draws, by the same uniforms, several times as fast: a node needs
hundreds of small operations on ragged lists, each of which costs torch more to start than to run.
Linear maps of parents are applied once, when a node is encoded, and not whenever it is chosen.

Shape letters: A node attributes, B graphs, D width of a state, E edges, F feature columns, G groups
of rows, J position buckets, K codes, R rows, X selected graphs.
"""

import ctypes
from bisect import bisect_right
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerdag.models.base import SampleRequest
from layerdag.models.fast.candidates import EdgesToParents
from layerdag.models.fast.encoder import WindowEncoder
from layerdag.models.fast.particles import NODE_CANDIDATES
from layerdag.models.fast.sampler import NextLayers, Sampler, SamplerModules
from layerdag.models.fast.sampling_kernels import LAYER, LEFT, RowMemory, joined_pointer
from layerdag.models.fast.tokens import FRACTIONS, OCTAVES


def supports(modules: SamplerModules, request: SampleRequest) -> bool:
    """Return whether ``CompiledSampler`` can sample what is asked for."""
    weight = modules.tokens.embedding.weight
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and request.guidance == 1.0
        and request.prefix is None
        and isinstance(modules.encoder, WindowEncoder)
    )


@final
class CompiledSampler(Sampler):
    """Draws nodes by kernels in C; see ``supports``."""

    def __init__(self, modules: SamplerModules, request: SampleRequest) -> None:
        super().__init__(modules, request)
        options = NODE_CANDIDATES if self.weighs else 1
        self._memory = RowMemory(
            modules,
            self.masks,
            self.seed_B,
            options=options,
            weighted=self.weighs,
            temperature=request.temperature,
            positions=request.max_nodes + 1,
        )
        assert isinstance(modules.encoder, WindowEncoder)
        self._encoder_blocks = modules.encoder.encoder_blocks
        self._pointer = joined_pointer(modules.heads)
        # States of groups: by first parent and kind, after a parent, and sums of chosen parents.
        width = self.encoded_RD.shape[1]
        self._states = [torch.empty(self.rows * options, width) for _ in range(5)]
        self._x_BA = modules.tokens.start_A.expand(self.rows, -1).contiguous()
        nothing = torch.zeros(0, dtype=torch.int64)
        self._newest = EdgesToParents(nothing, nothing, nothing)

    def _call(self, kernel: str, *arguments: Any) -> int:
        return self._memory.call(kernel, self.sample_B, *arguments)

    def _encode(self, position: int) -> Float[Tensor, "R D"]:
        """Encode the newest token of every graph and remember it."""
        modules, newest = self.modules, self._newest
        self._memory.go_to(position)
        bucket = bisect_right(modules.conditions.position_buckets, position)
        before_BD, after_BD = self.vectors.before_BJD[:, bucket], self.vectors.after_BJD[:, bucket]
        if modules.remaining is not None:
            remaining_BD = modules.remaining.lift(self._remaining_sizes()).chunk(2, dim=1)
            before_BD, after_BD = before_BD + remaining_BD[0], after_BD + remaining_BD[1]
        x_BD = torch.empty_like(self.encoded_RD)
        self._call("embed", self._x_BA, x_BD)
        x_BD += before_BD
        read_BD = torch.empty(self.rows, 2 * x_BD.shape[1])  # attended, and from the parents
        for block, layer in zip(self._encoder_blocks, self._memory.layers, strict=True):
            self._call(
                "attend",
                ctypes.addressof(layer),
                block.query_key_value(block.norm(x_BD)),
                newest.candidate_X.shape[0],
                newest.candidate_X,
                newest.parent_X,
                read_BD,
            )
            x_BD = x_BD + block.mix(read_BD)
            x_BD = x_BD + block.feed(x_BD)
        encoded_BD: Tensor = modules.last_norm(x_BD) + after_BD
        self._call("append", encoded_BD @ self._memory.tables.parent_maps_DK)
        return encoded_BD

    def _remaining_sizes(self) -> Float[Tensor, "B F"]:
        """Return the features of ``RemainingSizes``."""
        remaining = self.modules.remaining
        assert remaining is not None
        features_BF = torch.empty(self.rows, remaining.lift.in_features)
        self._call(
            "remaining",
            self.vectors.sizes_B2.contiguous(),
            remaining.octave_F.shape[0],
            OCTAVES,
            remaining.fraction_F.shape[0],
            FRACTIONS,
            features_BF,
        )
        return features_BF

    def _next_layers(self, position: int) -> NextLayers:
        """Draw the size of the next layer of every graph."""
        self._memory.go_to(position)
        size_B = np.empty(self.rows, dtype=np.int64)
        logits_BK = self.modules.heads.size_readout(self.encoded_RD)
        self._call("sizes", logits_BK, self.request.min_layers, size_B)
        features_BF = self._memory.features_BF[: self.rows]
        number_B = features_BF[:, LAYER] + int(position > 1)
        return NextLayers(features_BF[:, LEFT] == 0, number_B, size_B)

    def _begin_nodes(self, position: int, size_B: Int[np.ndarray, " B"]) -> None:
        """Start the next node; where a layer is complete, a new layer of ``size_B`` nodes."""
        self._call("start_nodes", size_B)

    def _add_nodes(self, position: int) -> None:
        """Draw candidates for the next node of every graph, and keep one of each."""
        heads = self.modules.heads
        first_GD, kind_GD, after_GD, sum_GD, other_GD = self._states
        context_BD = heads.context(self.encoded_RD)
        self._call("add_place", context_BD)
        groups = self._call("first_parents", self._pointed(context_BD), context_BD, first_GD)
        groups = self._call("kinds", heads.kind_readout(first_GD[:groups]), first_GD, kind_GD)
        edges = self._call("in_degrees", heads.degree_readout(kind_GD[:groups]))
        self._memory.reserve_edges(edges)
        groups, rank = self._call("start_parents", kind_GD, sum_GD, after_GD), 0
        while groups:
            logits_GK = heads.type_readout(after_GD[:groups])
            groups = self._call("edge_types", rank, logits_GK, after_GD, sum_GD)
            if groups:
                rank += 1
                scores_GK = self._pointed(after_GD[:groups])
                groups = self._call(
                    "further_parents", rank, scores_GK, kind_GD, sum_GD, other_GD, after_GD
                )
                sum_GD, other_GD = other_GD, sum_GD
        state_BD, edge_3E = first_GD[: self.rows], torch.empty(3, edges, dtype=torch.int64)
        x_BA = torch.empty_like(self._x_BA[: self.rows])
        allowed_BF = torch.empty(self.rows, self.masks.pairs_FF.shape[0], dtype=torch.bool)
        kept = self._call("choose", kind_GD, x_BA, allowed_BF, state_BD, *edge_3E)
        for index, readout in enumerate(heads.other_readouts, start=1):
            chained = index <= heads.num_chained
            table = heads.other_embeddings[index - 1].weight if chained else None
            self._call("attribute", index, readout(state_BD), table, x_BA, allowed_BF, state_BD)
        out_degree_B = self._out_degrees(position, state_BD, x_BA[:, 0])
        self._x_BA, self._newest = x_BA, EdgesToParents(*edge_3E[:, :kept])
        layer_B = torch.from_numpy(self._memory.features_BF[: self.rows, LAYER].copy())
        self._finish_nodes(position, x_BA, layer_B, self._newest, out_degree_B)

    def _pointed(self, state_GD: Float[Tensor, "G D"]) -> Float[Tensor, "G K"]:
        """Return queries, and scores of codes, of decisions on a parent."""
        weight_DK, bias_K = self._pointer
        return torch.addmm(bias_K, self.modules.heads.pointer.activate(state_GD), weight_DK)

    def _set_out_degrees(
        self, position: int, out_degree_B: Int[Tensor, " B"], capacity_B: Int[Tensor, " B"]
    ) -> None:
        """Set the number of children that the newest node is to have, and may have at most."""
        self._call("set_out_degrees", out_degree_B, capacity_B)

    def _select_rows(self, row_B: Int[np.ndarray, " B"]) -> None:
        """Keep the rows ``row_B`` of what is known about graphs."""
        self._memory.select(row_B)
        if row_B.shape[0] < self.rows:  # particles of a graph have the same conditions
            self.vectors = self.vectors.select(torch.from_numpy(row_B))

    def _log_weights(self) -> Float[np.ndarray, " B"] | None:
        """Return the log weight of each row since it was last set to 0, nats; None: no weights."""
        return self._memory.log_weight_B[: self.rows] if self.weighs else None

    def _reset_log_weights(self, row_X: Int[np.ndarray, " X"]) -> None:
        """Set the log weights of the rows ``row_X`` to 0."""
        self._memory.log_weight_B[row_X] = 0.0
