"""A sampler whose steps are in C between matrix products: on a processor, without guidance.

It draws what ``TensorSampler`` draws, by the same uniforms, several times as fast: a node needs
hundreds of small operations on ragged lists, each of which costs torch more to start than to run.
Linear maps of parents are applied once, when a node is encoded, and not whenever it is chosen.

Shape letters: A node attributes, B graphs, D width of a state, E edges, F feature columns, G groups
of rows, J position buckets, K codes, R rows, X selected graphs.
"""

import ctypes
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.models.base import SampleRequest
from layerdag.models.fast.candidates import EdgesToParents
from layerdag.models.fast.decisions import Readout
from layerdag.models.fast.encoder import EncoderBlock, WindowEncoder
from layerdag.models.fast.particles import NODE_CANDIDATES
from layerdag.models.fast.sampler import NextLayers, Sampler, SamplerModules
from layerdag.models.fast.sampling_kernels import RowMemory
from layerdag.models.fast.tokens import FRACTIONS, OCTAVES, Feature
from layerdag.models.layers import LinearMap


@dataclass(frozen=True, eq=False)
class ActivatedMap:
    """A readout: normalization, GELU, linear maps.

    Attributes:
        scale_D: Of the normalization.
        linear: The maps.
    """

    scale_D: Float[Tensor, " D"]
    linear: LinearMap

    @classmethod
    def of(cls, readout: Readout) -> "ActivatedMap":
        """Return the readout of a module."""
        return cls(readout.norm.weight.detach(), LinearMap.of(readout.project))


@dataclass(frozen=True, eq=False)
class EncoderLayer:
    """The maps of an encoder block.

    Attributes:
        scale_D: Of the normalization before attention.
        query_key_value: Of attention.
        mix: Of what attention and messages bring.
        feed_scale_D: Of the normalization before the feed-forward network.
        widen: Its first map.
        narrow: Its second one.
    """

    scale_D: Float[Tensor, " D"]
    query_key_value: LinearMap
    mix: LinearMap
    feed_scale_D: Float[Tensor, " D"]
    widen: LinearMap
    narrow: LinearMap

    @classmethod
    def of(cls, block: EncoderBlock) -> "EncoderLayer":
        """Return the maps of a module."""
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
class CompiledSampler(Sampler):
    """Draws nodes by kernels in C."""

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
        self._encoder = [EncoderLayer.of(block) for block in modules.encoder.encoder_blocks]
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
        width = self.encoded_RD.shape[1]
        self._states = [torch.empty(self.rows * options, width) for _ in range(5)]
        self._activated_GD = torch.empty(self.rows * options, width)
        self._x_BA = modules.tokens.start_A.expand(self.rows, -1).contiguous()
        nothing = torch.zeros(0, dtype=torch.int64)
        self._newest = EdgesToParents(nothing, nothing, nothing)

    @staticmethod
    def supports(modules: SamplerModules, request: SampleRequest) -> bool:
        """Return whether it can sample what is asked for."""
        weight = modules.tokens.embedding.weight
        return (
            weight.device.type == "cpu"
            and weight.dtype == torch.float32
            and request.guidance == 1.0
            and request.prefix is None
            and type(modules.encoder) is WindowEncoder  # a subclass may encode otherwise
        )

    def _call(self, kernel: str, *arguments: Any) -> int:
        return self._memory.call(kernel, self.sample_B, *arguments)

    def _read(
        self, readout: ActivatedMap, state_GD: Float[Tensor, "_ D"], groups: int
    ) -> Float[Tensor, "G K"]:
        """Return the logits of the first groups."""
        self._call("activate", groups, state_GD, readout.scale_D, self._activated_GD)
        return readout.linear(self._activated_GD[:groups])

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
        normed_BD = self._activated_GD[: self.rows]
        for layer, memory in zip(self._encoder, self._memory.layers, strict=True):
            self._call("normalize", self.rows, x_BD, layer.scale_D, normed_BD)
            self._call(
                "attend",
                ctypes.addressof(memory),
                layer.query_key_value(normed_BD),
                newest.candidate_X.shape[0],
                newest.candidate_X,
                newest.parent_X,
                read_BD,
            )
            x_BD = x_BD.addmm_(read_BD, layer.mix.weight_DK)
            self._call("normalize", self.rows, x_BD, layer.feed_scale_D, normed_BD)
            wide_BK = layer.widen(normed_BD)
            self._call("gelu", wide_BK.numel(), wide_BK)
            x_BD = x_BD.addmm_(wide_BK, layer.narrow.weight_DK).add_(layer.narrow.bias_K)
        self._call("normalize", self.rows, x_BD, self._last_scale_D, normed_BD)
        encoded_BD = normed_BD + after_BD
        self._call("append", self._of_parents(encoded_BD))
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
        logits_BK = self._read(self._size, self.encoded_RD, self.rows)
        self._call("sizes", logits_BK, self.request.min_layers, size_B)
        features_BF = self._memory.features_BF[: self.rows]
        number_B = features_BF[:, Feature.LAYER] + int(position > 1)
        return NextLayers(features_BF[:, Feature.LEFT] == 0, number_B, size_B)

    def _begin_nodes(self, position: int, size_B: Int[np.ndarray, " B"]) -> None:
        """Start the next node; where a layer is complete, a new layer of ``size_B`` nodes."""
        self._call("start_nodes", size_B)

    def _add_nodes(self, position: int) -> None:
        """Draw candidates for the next node of every graph, and keep one of each."""
        heads = self.modules.heads
        first_GD, kind_GD, after_GD, sum_GD, other_GD = self._states
        context_BD = self._context(self.encoded_RD)
        self._call("add_place", context_BD)
        scores_GK = self._read(self._pointer, context_BD, self.rows)
        groups = self._call("first_parents", scores_GK, context_BD, first_GD)
        groups = self._call("kinds", self._read(self._kind, first_GD, groups), first_GD, kind_GD)
        edges = self._call("in_degrees", self._read(self._degree, kind_GD, groups))
        self._memory.reserve_edges(edges)
        groups, rank = self._call("start_parents", kind_GD, sum_GD, after_GD), 0
        while groups:
            logits_GK = self._read(self._type, after_GD, groups)
            groups = self._call("edge_types", rank, logits_GK, after_GD, sum_GD)
            if groups:
                rank += 1
                scores_GK = self._read(self._pointer, after_GD, groups)
                groups = self._call(
                    "further_parents", rank, scores_GK, kind_GD, sum_GD, other_GD, after_GD
                )
                sum_GD, other_GD = other_GD, sum_GD
        state_BD, edge_3E = first_GD[: self.rows], torch.empty(3, edges, dtype=torch.int64)
        x_BA = torch.empty_like(self._x_BA[: self.rows])
        allowed_BF = torch.empty(self.rows, self.masks.pairs_FF.shape[0], dtype=torch.bool)
        kept = self._call("choose", kind_GD, x_BA, allowed_BF, state_BD, *edge_3E)
        for index, readout in enumerate(self._others, start=1):
            chained = index <= heads.num_chained
            table = heads.other_embeddings[index - 1].weight if chained else None
            logits_BK = self._read(readout, state_BD, self.rows)
            self._call("attribute", index, logits_BK, table, x_BA, allowed_BF, state_BD)
        out_degree_B = self._out_degrees(position, state_BD, x_BA[:, 0])
        self._x_BA, self._newest = x_BA, EdgesToParents(*edge_3E[:, :kept])
        layer_B = torch.from_numpy(self._memory.features_BF[: self.rows, Feature.LAYER].copy())
        self._finish_nodes(position, x_BA, layer_B, self._newest, out_degree_B)

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
