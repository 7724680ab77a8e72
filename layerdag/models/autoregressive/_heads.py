"""The decisions of the fast model as readouts of one state per node, in training and sampling.

For node j, given everything before it (state of token j-1):

    first parent -> kind -> in-degree -> further parents and edge types -> other attributes
    -> out-degree

The *kind* is the first attribute. The other attributes follow one another, each given those before
it (NADE, arXiv 1605.02226). The *out-degree* is the number of children in the finished graph.
It is a function of the whole graph, so that predicting it changes no probability of a graph, but
later siblings, layer sizes and the end of the graph can depend on it. It is optional.

Parameter names (``slot``, ``first_stub``, ``open_embedding``, ``plan_readout``, ``far_query``) are
those of published checkpoints.

Shape letters: D width of a state, F feature columns, K codes, L layers, N nodes, P pairs, Q
decisions, d width of a head or key.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layerdag.graph import GraphSizes, GraphStatistics
from layerdag.models.autoregressive._config import HeadsConfig
from layerdag.models.autoregressive._parents import (
    BLOCK_CODES,
    STUB_CODES,
    TOKEN_CODES,
    CandidatePairs,
    TokenCodes,
    no_token_codes,
    token_codes,
)
from layerdag.models.layers import CountCode, Counter, SumEmbedding, gather_rows, to_float32


class Readout(nn.Module):
    """Logits from a state: normalization, GELU, linear map."""

    def __init__(self, width: int, num_codes: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, bias=False)
        self.project = nn.Linear(width, num_codes)

    def forward(self, state: Float[Tensor, "*shape D"]) -> Float[Tensor, "*shape K"]:
        """Return logits, shape (..., codes)."""
        logits: Tensor = self.project(F.gelu(self.norm(state)))
        return logits


class Pointer(nn.Module):
    """Scores of candidate parents: dot product of query and key, plus a term per feature code.

    Args:
        width: Of a state.
        key_width: Of queries and keys.
        token_codes: Features of candidate tokens.
    """

    offset_F: Tensor

    def __init__(self, width: int, key_width: int, token_codes: TokenCodes = token_codes) -> None:
        super().__init__()
        self.token_codes = token_codes
        self.norm = nn.LayerNorm(width, bias=False)
        self.query = nn.Linear(width, key_width)
        self.far_query = nn.Linear(width, key_width)
        self.code_scores = nn.Linear(width, sum(TOKEN_CODES))
        self.block_scores = nn.Linear(width, BLOCK_CODES)
        self.key = nn.Linear(width, key_width, bias=False)
        ends = torch.tensor(TOKEN_CODES).cumsum(0)
        self.register_buffer("offset_F", ends - torch.tensor(TOKEN_CODES), persistent=False)

    def activate(self, state_QD: Float[Tensor, "Q D"]) -> Float[Tensor, "Q D"]:
        """Return the hidden state from which the scores are computed."""
        return F.gelu(self.norm(state_QD))

    def tokens(
        self,
        hidden_QD: Float[Tensor, "Q D"],
        key_Pd: Float[Tensor, "P d"],
        codes_P4: Int[Tensor, "P 4"],
        candidates: CandidatePairs,
    ) -> Float[Tensor, " P"]:
        """Return the score of each candidate token, shape (P,)."""
        decision_P = candidates.decision_P
        query_Pd = gather_rows(self.query(hidden_QD), decision_P)
        score_P = to_float32(query_Pd * key_Pd).sum(-1) * key_Pd.shape[1] ** -0.5
        code_QK = self.code_scores(hidden_QD)
        flat_P4 = decision_P[:, None] * code_QK.shape[1] + codes_P4 + self.offset_F
        return score_P + code_QK.flatten().gather(0, flat_P4.flatten()).view(flat_P4.shape).sum(-1)

    def blocks(
        self,
        hidden_QD: Float[Tensor, "Q D"],
        key_Pd: Float[Tensor, "P d"],
        codes_P: Int[Tensor, " P"],
        candidates: CandidatePairs,
    ) -> Float[Tensor, " P"]:
        """Return the score of each candidate block (mean key, code of its pending children)."""
        decision_P = candidates.decision_P
        query_Pd = gather_rows(self.far_query(hidden_QD), decision_P)
        score_P = to_float32(query_Pd * key_Pd).sum(-1) * key_Pd.shape[1] ** -0.5
        return score_P + self.block_scores(hidden_QD)[decision_P, codes_P]


_PARENT_FEATURES: dict[str, TokenCodes] = {"dynamic": token_codes, "none": no_token_codes}


class Heads(nn.Module):
    """States and readouts of all decisions.

    Args:
        sizes: Counts of the data set's schema.
        statistics: Of the training graphs.
        width: Of a state.
        key_width: Of the keys of candidate parents.
        plans: Whether the out-degree is predicted.
        config: Which decisions see what.
    """

    out_degree: Counter | None
    plan_readout: Readout | None
    chosen_parents: nn.Linear | None

    def __init__(
        self,
        sizes: GraphSizes,
        statistics: GraphStatistics,
        width: int,
        key_width: int,
        *,
        plans: bool,
        config: HeadsConfig | None = None,
    ) -> None:
        super().__init__()
        config = config or HeadsConfig()
        kinds, *others = sizes.attributes
        self.size = Counter(CountCode(24, statistics.max_layer_size))
        self.in_degree = Counter(CountCode(16, statistics.max_in_degree))
        self.out_degree = Counter(CountCode(16, statistics.max_out_degree)) if plans else None
        slot_codes = [self.size.num_codes, self.size.num_codes, self.size.num_codes]
        self.context = nn.Linear(width, width)
        self.slot = SumEmbedding(slot_codes, width)
        self.pointer = Pointer(width, key_width, _PARENT_FEATURES[config.parent_features])
        self.first_parent = nn.Linear(width, width, bias=False)
        self.first_stub = SumEmbedding([STUB_CODES], width)
        self.kind_embedding = SumEmbedding([kinds], width)
        self.degree_embedding = SumEmbedding([self.in_degree.num_codes], width)
        self.open_embedding = SumEmbedding([self.in_degree.num_codes], width)
        self.last_parent = nn.Linear(width, width, bias=False)
        self.all_parents = nn.Linear(width, width, bias=False)
        # Only the out-degree readout depends on the last attribute.
        embedded = others if plans else others[:-1]
        self.other_embeddings = nn.ModuleList(SumEmbedding([size], width) for size in embedded)
        # Attributes that later ones see; the parameters of the others stay as they were made.
        self.num_chained = len(embedded) if config.attributes == "chained" else 0
        self.size_readout = Readout(width, self.size.num_codes)
        self.kind_readout = Readout(width, kinds)
        self.degree_readout = Readout(width, self.in_degree.num_codes)
        self.type_readout = Readout(width, sizes.edge_types)
        self.other_readouts = nn.ModuleList(Readout(width, size) for size in others)
        self.plan_readout = Readout(width, self.out_degree.num_codes) if self.out_degree else None
        # Made last, so that the weights of models without it start as they always did.
        self.chosen_parents = (
            nn.Linear(width, width, bias=False) if config.chosen_parents == "all" else None
        )

    def size_logits(
        self, encoded_LD: Float[Tensor, "L D"], first_L: Bool[Tensor, " L"]
    ) -> Float[Tensor, "L K"]:
        """Return the logits of layer sizes; size 0 ends the graph and is excluded for layer 0."""
        logits_LK = self.size_readout(encoded_LD)
        empty_K = torch.arange(self.size.num_codes, device=first_L.device) == 0
        return logits_LK.masked_fill(first_L[:, None] & empty_K, -torch.inf)

    def context_state(
        self,
        encoded_ND: Float[Tensor, "N D"],
        size_N: Int[Tensor, " N"],
        index_N: Int[Tensor, " N"],
    ) -> Float[Tensor, "N D"]:
        """Return the state from the previous token, the layer size and the index in the layer."""
        slot_N3 = torch.stack([size_N, index_N, size_N - index_N], dim=1)
        return self.context(encoded_ND) + self.slot(self.size.encode(slot_N3))

    def kind_state(
        self,
        context_ND: Float[Tensor, "N D"],
        parent_ND: Float[Tensor, "N D"],
        stub_N: Int[Tensor, " N"],
    ) -> Float[Tensor, "N D"]:
        """Add the first parent: its encoding (zero in layer 0) and its stub code."""
        return context_ND + self.first_parent(parent_ND) + self.first_stub(stub_N[:, None])

    def degree_state(
        self, state_ND: Float[Tensor, "N D"], kind_N: Int[Tensor, " N"]
    ) -> Float[Tensor, "N D"]:
        """Add the kind."""
        return state_ND + self.kind_embedding(kind_N[:, None])

    def further_state(
        self,
        state_QD: Float[Tensor, "Q D"],
        parent_QD: Float[Tensor, "Q D"],
        open_Q: Int[Tensor, " Q"],
        chosen_QD: Float[Tensor, "Q D"],
    ) -> Float[Tensor, "Q D"]:
        """Add the parent chosen last, the number of remaining parents, the sum of those chosen."""
        open_QD = self.open_embedding(self.in_degree.encode(open_Q)[:, None])
        state_QD = state_QD + self.last_parent(parent_QD) + open_QD
        if self.chosen_parents is None:
            return state_QD
        chosen: Tensor = self.chosen_parents(chosen_QD)
        return state_QD + chosen

    def after_other(
        self, state_ND: Float[Tensor, "N D"], index: int, code_N: Int[Tensor, " N"]
    ) -> Float[Tensor, "N D"]:
        """Add the attribute number ``index`` after the kind, if a later decision depends on it."""
        if index >= self.num_chained:
            return state_ND
        embedded_ND: Tensor = self.other_embeddings[index](code_N[:, None])
        return state_ND + embedded_ND

    def other_state(
        self,
        state_ND: Float[Tensor, "N D"],
        degree_N: Int[Tensor, " N"],
        parents_ND: Float[Tensor, "N D"],
    ) -> Float[Tensor, "N D"]:
        """Add the in-degree and the mean encoding of all parents."""
        degree_ND = self.degree_embedding(self.in_degree.encode(degree_N)[:, None])
        return state_ND + degree_ND + self.all_parents(parents_ND)
