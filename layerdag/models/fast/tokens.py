"""What the encoder reads: codes of nodes, features of their positions, conditions of their graphs.

A graph has a condition vector per position bucket. The first nodes of a graph depend most on its
conditions, but there are few of them: the gradient of one vector that is added to every token is
dominated by later decisions, which follow from earlier tokens. So the positions of a graph fall
into buckets of growing length with a vector each, and the conditions are also added to the
encoder's output. Codes enter linearly: a nonlinearity before the normalization made the vectors of
different conditions almost parallel.

The numbers of nodes and of layers asked for are followed more closely: every token also knows how
many are still to come (``RemainingSizes``).

Shape letters: A node attributes, B graphs, C numeric conditions, D width of a state, E edges, F
feature columns, J position buckets, M categorical conditions, N nodes, R rows, T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.dag.dag import GraphSizes
from layerdag.models.conditions import Conditions
from layerdag.models.config import POSITION_BUCKETS
from layerdag.models.fast.layout import BatchLayout, Edges
from layerdag.models.fused import product_dtype, run_kernel
from layerdag.models.layers import CountEncoder, Linear, SumEmbedding, gather_rows

# Scale of the condition vectors relative to token embeddings; larger ones slow learning down.
_INPUT_SCALE = 0.25
# Centers of the radial basis functions, in standard deviations; their width is one.
_CENTERS = (-2.0, -1.0, 0.0, 1.0, 2.0)
# Distance and number of the centers of the features of remaining nodes and layers: of the logarithm
# to base 2 of their number, and of the fraction that is there.
OCTAVES, _NUM_OCTAVES = 0.5, 29
FRACTIONS, _NUM_FRACTIONS = 0.05, 26
# Standard deviation of the logarithm of the factor between a size that a training graph has and the
# one it is said to be asked for.
_SIZE_NOISE = 0.03


@dataclass(frozen=True, eq=False)
class ConditionVectors:
    """Condition vectors of B graphs in S position buckets."""

    before_BJD: Float[Tensor, "B J D"]  # added to the encoder's input
    after_BJD: Float[Tensor, "B J D"]  # added to the encoder's output
    sizes_B2: Float[Tensor, "B 2"]  # numbers of nodes and of layers asked for; NaN is unknown

    def select(self, row_R: Int[Tensor, " R"]) -> "ConditionVectors":
        """Return the vectors of some graphs."""
        return ConditionVectors(self.before_BJD[row_R], self.after_BJD[row_R], self.sizes_B2[row_R])


class ConditionEncoder(nn.Module):
    """Vectors from conditions; an unknown condition has a learned vector or none.

    A standardized number enters as itself and as radial basis functions (RBF) with a width of one
    standard deviation. Narrower ones would identify single training graphs and lead to overfitting.

    Parameter names (``stage_lift``, ``stage_categories``) are those of published checkpoints.
    """

    first_position_J: Tensor
    center_F: Tensor

    def __init__(
        self, sizes: GraphSizes, width: int, position_buckets: Sequence[int] = POSITION_BUCKETS
    ) -> None:
        super().__init__()
        self.position_buckets = tuple(position_buckets)
        first_position_J = torch.tensor(self.position_buckets, dtype=torch.int64)
        self.register_buffer("first_position_J", first_position_J, persistent=False)
        self._host_first_position_J = first_position_J.clone()  # batches are made on the host
        self.register_buffer("center_F", torch.tensor(_CENTERS), persistent=False)
        features = sizes.numeric_conditions * (2 + len(_CENTERS))
        codes = [size + 1 for size in sizes.category_conditions]
        buckets = len(self.position_buckets) + 1
        self.lift = Linear(features, width, bias=False) if features else None
        self.stage_lift = Linear(features, buckets * width, bias=False) if features else None
        self.categories = SumEmbedding(codes, width) if codes else None
        self.stage_categories = SumEmbedding(codes, buckets * width) if codes else None
        self.norm = nn.LayerNorm(width, bias=False)
        self.after = Linear(width, width, bias=False)
        for late in (self.stage_lift, self.stage_categories, self.after):
            if late is not None:
                nn.init.zeros_(late.weight)

    def forward(self, conditions: Conditions) -> ConditionVectors:
        """Return the vectors of each graph in each position bucket."""
        numeric_BC, category_BM = conditions.numeric_BC, conditions.category_BM
        shape = (numeric_BC.shape[0], len(self.position_buckets) + 1, -1)
        code_BJD = self.after.weight.new_zeros(*shape[:2], self.after.in_features)
        if self.lift is not None and self.stage_lift is not None:
            value_BF = self._features(numeric_BC)
            code_BJD = code_BJD + self.lift(value_BF)[:, None]
            code_BJD = code_BJD + self.stage_lift(value_BF).view(shape)
        if self.categories is not None and self.stage_categories is not None:
            code_BJD = code_BJD + self.categories(category_BM + 1)[:, None]
            code_BJD = code_BJD + self.stage_categories(category_BM + 1).view(shape)
        normed_BJD = self.norm(code_BJD)
        before_BJD, after_BJD = _INPUT_SCALE * normed_BJD, self.after(normed_BJD)
        return ConditionVectors(before_BJD, after_BJD, conditions.known_sizes_B2)

    def bucket(self, position: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """Return the bucket of each position of a graph."""
        on_host = position.device.type == "cpu"
        first_position_J = self._host_first_position_J if on_host else self.first_position_J
        return torch.bucketize(position, first_position_J, right=True)

    def _features(self, numeric_BC: Float[Tensor, "B C"]) -> Float[Tensor, "B F"]:
        """Return value, RBF features and whether it is known; all zero for an unknown number."""
        known_BC = ~numeric_BC.isnan()
        value_BC1 = numeric_BC.nan_to_num(0.0).clamp(-10.0, 10.0)[..., None]
        rbf_BCF = (-0.5 * (value_BC1 - self.center_F).square()).exp()
        features_BCF = torch.cat([value_BC1, rbf_BCF, torch.ones_like(value_BC1)], dim=2)
        return (features_BCF * known_BC[..., None]).flatten(1)


class RemainingSizes(nn.Module):
    """Vectors from how many nodes and layers of a graph are there, and how many are still to come.

    The idea is that of length-difference positional encoding (Takase and Okazaki, arXiv
    1904.07418, section 3.1). Features are radial basis functions of the logarithm of the number to
    come and of the fraction that is there, for nodes and for layers; where no number is asked for,
    they are zero. The map is zero at first, so that weights which were trained without it mean what
    they did.
    """

    octave_F: Tensor
    fraction_F: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        octave_F, fraction_F = torch.arange(_NUM_OCTAVES), torch.arange(_NUM_FRACTIONS)
        self.register_buffer("octave_F", octave_F * OCTAVES, persistent=False)
        self.register_buffer("fraction_F", fraction_F * FRACTIONS, persistent=False)
        self.lift = Linear(2 * (_NUM_OCTAVES + _NUM_FRACTIONS + 1), 2 * width, bias=False)
        nn.init.zeros_(self.lift.weight)

    def forward(
        self,
        position_T: Int[Tensor, " T"],
        layer_T: Int[Tensor, " T"],
        sizes_T2: Float[Tensor, "T 2"],
    ) -> tuple[Float[Tensor, "T D"], Float[Tensor, "T D"]]:
        """Return what is added to the encoder's input and to its output, (T, D) each.

        ``position_T`` are the nodes of a token's graph up to it, ``layer_T`` the layers before its
        own.
        """
        if product_dtype(self.lift.weight, self) is None or sizes_T2.requires_grad:
            features_T2F = self._features(torch.stack([position_T, layer_T], dim=1), sizes_T2)
            features_TF = features_T2F.flatten(1)
        else:
            features_TF = self.lift.weight.new_empty(position_T.shape[0], self.lift.in_features)
            given = (position_T.long(), layer_T.long(), sizes_T2.float())
            run_kernel(
                "remaining",
                position_T.shape[0],
                *(x.contiguous() for x in given),
                *(_NUM_OCTAVES, OCTAVES, _NUM_FRACTIONS, FRACTIONS),
                features_TF,
            )
        before_TD, after_TD = self.lift(features_TF).chunk(2, dim=1)
        return before_TD, after_TD

    def _features(self, done_T2: Tensor, asked_T2: Tensor) -> Tensor:
        """Return radial basis functions and whether the number is known; zeros where it is not."""
        asked_T21, done_T21 = asked_T2[..., None], done_T2[..., None]
        known_T21 = ~asked_T21.isnan()
        asked_T21 = asked_T21.nan_to_num(1.0).clamp(min=1.0)
        left_T21 = (asked_T21 - done_T21).clamp(min=0.0)
        octave_T2F = ((1.0 + left_T21).log2() - self.octave_F) / OCTAVES
        fraction_T2F = (
            (done_T21 / asked_T21).clamp(max=self.fraction_F[-1]) - self.fraction_F
        ) / FRACTIONS
        rbf_T2F = (-0.5 * torch.cat([octave_T2F, fraction_T2F], dim=2).square()).exp()
        return torch.cat([rbf_T2F, torch.ones_like(asked_T21)], dim=2) * known_T21


def noisy_sizes(
    sizes_B2: Int[Tensor, "B 2"], generator: torch.Generator | None
) -> Float[Tensor, "B 2"]:
    """Return the sizes that training says were asked for: nearly those that graphs have.

    With the exact number the last decisions of a graph would be made to fit it, whatever a program
    then does. Without a generator numbers are exact.
    """
    asked_B2 = sizes_B2.float()
    if generator is None:
        return asked_B2
    noise_B2 = torch.randn(asked_B2.shape, generator=generator, device=asked_B2.device)
    return asked_B2 * (_SIZE_NOISE * noise_B2).exp()


def drop_conditions(conditions: Conditions, rate: float, generator: torch.Generator) -> Conditions:
    """Drop conditions as ``Conditions.dropped``; all numbers of a graph are drawn in one row."""
    graphs, count = conditions.numeric_BC.shape
    sizes = 0 if conditions.sizes_B2 is None else conditions.sizes_B2.shape[1]
    columns = count + conditions.category_BM.shape[1] + sizes + 1
    device = conditions.numeric_BC.device
    uniform = torch.rand(graphs, columns, generator=generator, device=device)
    return conditions.dropped(uniform, rate)


def at_tokens(
    vector_BJD: Float[Tensor, "B J D"], graph_T: Int[Tensor, " T"], bucket_T: Int[Tensor, " T"]
) -> Float[Tensor, "T D"]:
    """Return the vector of each token's graph in the token's bucket, shape (T, D)."""
    return gather_rows(vector_BJD.flatten(0, 1), graph_T * vector_BJD.shape[1] + bucket_T)


class Feature(IntEnum):
    """Structural features of a completed token; start tokens have zeros and a layer size of 1.

    In a model without out-degree prediction all predicted out-degrees are 0; the numbers of pending
    children are then negative and are encoded as 0.
    """

    DEGREE = 0  # in-degree
    OUT_DEGREE = 1  # predicted number of children; in training the true one
    SIZE = 2  # number of nodes of the layer
    INDEX = 3  # position in the layer
    LEFT = 4  # number of nodes of the layer that follow
    OPEN = 5  # pending children of all tokens so far: predicted ones less the edges so far
    OPEN_LAYER = 6  # pending children of the token's own layer so far
    # Pending children of the layer before: predicted ones less its edges to this layer so far.
    OPEN_BEFORE = 7
    POSITION = 8  # position in the graph
    LAYER = 9


def structural_features(
    layout: BatchLayout, edges: Edges, out_degree_T: Int[Tensor, " T"]
) -> Int[Tensor, "T F"]:
    """Return the features of a batch of complete graphs with out-degrees ``out_degree_T``."""
    degree_T = torch.zeros_like(edges.out_degree_T)
    degree_T[layout.token_N] = edges.in_degree_N
    from_before_E = layout.layer_T[edges.parent_E] == layout.layer_T[edges.child_E] - 1
    near_T = torch.bincount(edges.child_E[from_before_E], minlength=layout.num_tokens)
    out_degree_sum_T, in_degree_sum_T, near_sum_T = (
        count_T.cumsum(0) for count_T in (out_degree_T, degree_T, near_T)
    )
    start_T = layout.start_B[layout.graph_T]
    layer_start_T, before_start_T = start_T + 1, start_T + 1
    layer_start_T = layer_start_T.index_put((layout.token_N,), layout.layer_start_N)
    before_start_T = before_start_T.index_put((layout.token_N,), layout.parent_start_N)
    below_T = layer_start_T - 1
    open_T = out_degree_sum_T - in_degree_sum_T
    open_before_T = out_degree_sum_T[below_T] - out_degree_sum_T[before_start_T - 1]
    features = {
        Feature.DEGREE: degree_T,
        Feature.OUT_DEGREE: out_degree_T,
        Feature.SIZE: layout.size_T,
        Feature.INDEX: layout.index_T,
        Feature.LEFT: layout.size_T - layout.index_T - 1,
        Feature.OPEN: open_T - open_T[start_T],
        Feature.OPEN_LAYER: (out_degree_sum_T - out_degree_sum_T[below_T]) * (layout.layer_T >= 0),
        Feature.OPEN_BEFORE: (open_before_T - near_sum_T + near_sum_T[below_T])
        * (layout.layer_T > 0),
        Feature.POSITION: layout.position_T,
        Feature.LAYER: layout.layer_T.clamp(min=0),
    }
    return torch.stack([features[feature] for feature in Feature], dim=1)


class TokenEmbedding(nn.Module):
    """The encoder's input: attributes and structural features as one sum of embeddings.

    The start token has a code of its own (one past the last) for every attribute.
    """

    start_A: Tensor

    def __init__(self, sizes: GraphSizes, width: int) -> None:
        super().__init__()
        self.register_buffer("start_A", torch.tensor(sizes.attributes), persistent=False)
        self._start_A = torch.tensor(sizes.attributes)  # stays on the host
        self.scale = CountEncoder(exact=24, largest=4096)
        codes = [size + 1 for size in sizes.attributes]
        counts = [self.scale.num_codes] * len(Feature)
        self.embedding = SumEmbedding([*codes, *counts], width)

    def codes(
        self, x_NA: Int[Tensor, "N A"], features_TF: Int[Tensor, "T F"]
    ) -> Int[Tensor, "T F2"]:
        """Return the codes of all tokens of whole graphs, those of start tokens filled in."""
        start_A = self._start_A.to(x_NA.device)
        x_TA = start_A.expand(features_TF.shape[0], -1).clone()
        x_TA[features_TF[:, Feature.POSITION] > 0] = x_NA
        return torch.cat([x_TA, self.scale.encode(features_TF.clamp(min=0))], dim=1)

    def forward(
        self, x_RA: Int[Tensor, "R A"], features_RF: Int[Tensor, "R F"]
    ) -> Float[Tensor, "R D"]:
        """Return the input of the encoder before the conditions are added."""
        code_RF = self.scale.encode(features_RF.clamp(min=0))
        embedded_RD: Tensor = self.embedding(torch.cat([x_RA, code_RF], dim=1))
        return embedded_RD
