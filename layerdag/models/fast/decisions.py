"""The decisions of the fast model as readouts of one state per node, and their losses.

For node j, given everything before it (state of token j-1):

    first parent -> kind -> in-degree -> further parents and edge types -> other attributes
    -> out-degree

The *kind* is the first attribute. The other attributes follow one another, each given those before
it (NADE, arXiv 1605.02226). The *out-degree* is the number of children in the finished graph.
It is a function of the whole graph, so that predicting it changes no probability of a graph, but
later siblings, layer sizes and the end of the graph can depend on it. It is optional.

Teacher forcing computes the likelihood of every decision of a batch of training graphs in one pass.
Parameter names (``slot``, ``first_stub``, ``open_embedding``, ``plan_readout``, ``far_query``) are
those of published checkpoints.

Shape letters: A node attributes, B graphs, D width of a state, E edges, F feature columns, G groups
of rows, K codes, L layers, N nodes, P pairs, Q decisions, R rows, T tokens, Z attention blocks, d
width of a head or key, q selected decisions.
"""

from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layerdag.dag.dag import DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.config import HeadsConfig
from layerdag.models.fast.encoder import block_sum
from layerdag.models.fast.fused_losses import ReadoutChain, pointer_loss
from layerdag.models.fast.fused_states import DecisionStates, fused_states
from layerdag.models.fast.layout import (
    BLOCK_CODES,
    STUB_CODES,
    TOKEN_CODES,
    BatchLayout,
    CandidatePairs,
    Edges,
)
from layerdag.models.fast.targets import NOT_A_TARGET, CountCodes, Targets
from layerdag.models.fused import Activation, activated_linear, activated_product, product_dtype
from layerdag.models.layers import (
    CountEncoder,
    Linear,
    SumEmbedding,
    gather_rows,
    segment_mean,
    to_float32,
)


class Readout(nn.Module):
    """Logits from a state: normalization, GELU, linear map."""

    def __init__(self, width: int, num_codes: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, bias=False)
        self.project = Linear(width, num_codes)

    def forward(self, state: Float[Tensor, "*shape D"]) -> Float[Tensor, "*shape K"]:
        """Return logits, shape (..., codes)."""
        return activated_linear(Activation(self.norm, gelu=True), self.project, state)


def readout_chain(
    readouts: Sequence[Readout], embeddings: Sequence[nn.Module], state_ND: Float[Tensor, "N D"]
) -> ReadoutChain | None:
    """Return readouts of one state after the other, where they are fused (``ReadoutChain``)."""
    modules = [part for each in readouts for part in (each, each.norm, each.project)]
    dtype = product_dtype(state_ND, *modules, *embeddings)
    if dtype is None or not readouts or any(each.norm.bias is not None for each in readouts):
        return None
    return ReadoutChain(
        [each.norm for each in readouts],
        [each.project.weight for each in readouts],
        [each.project.bias for each in readouts],
        [cast(SumEmbedding, each).weight for each in embeddings],
        dtype,
    )


class Pointer(nn.Module):
    """Scores of candidate parents: dot product of query and key, plus a term per feature code."""

    offset_F: Tensor

    def __init__(self, width: int, key_width: int, *, dynamic: bool = True) -> None:
        super().__init__()
        self.dynamic = dynamic  # whether candidates have features that change as a graph grows
        self.norm = nn.LayerNorm(width, bias=False)
        self.query = Linear(width, key_width)
        self.far_query = Linear(width, key_width)
        self.code_scores = Linear(width, sum(TOKEN_CODES))
        self.block_scores = Linear(width, BLOCK_CODES)
        self.key = Linear(width, key_width, bias=False)
        ends = torch.tensor(TOKEN_CODES).cumsum(0)
        self.register_buffer("offset_F", ends - torch.tensor(TOKEN_CODES), persistent=False)

    def projection(self, state_QD: Float[Tensor, "Q D"]) -> Float[Tensor, "Q _"] | None:
        """Return all that ``pointer_loss`` needs of decisions, or None where it is not fused."""
        maps = (self.query, self.far_query, self.code_scores, self.block_scores)
        dtype = product_dtype(state_QD, self)
        if dtype is None or self.key.out_features % 8:
            return None
        weight_KD = torch.cat([each.weight for each in maps])
        bias_K = torch.cat([each.bias for each in maps])
        return activated_product(
            Activation(self.norm, gelu=True), weight_KD, bias_K, state_QD, dtype
        )

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
        score_P = _dot(query_Pd, key_Pd) * key_Pd.shape[1] ** -0.5
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
        score_P = _dot(query_Pd, key_Pd) * key_Pd.shape[1] ** -0.5
        code_QK = self.block_scores(hidden_QD)
        # Not [decision_P, codes_P], whose gradient a GPU adds up row by row.
        return score_P + code_QK.flatten().gather(0, decision_P * code_QK.shape[1] + codes_P)


def _dot(query_Pd: Float[Tensor, "P d"], key_Pd: Float[Tensor, "P d"]) -> Float[Tensor, " P"]:
    precision = torch.promote_types(key_Pd.dtype, torch.float32)
    return (query_Pd * key_Pd).sum(-1, dtype=precision)


class Heads(nn.Module):
    """States and readouts of all decisions."""

    out_degree: CountEncoder | None
    plan_readout: Readout | None
    chosen_parents: Linear | None

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
        self.size = CountEncoder(24, statistics.max_layer_size)
        self.in_degree = CountEncoder(16, statistics.max_in_degree)
        self.out_degree = CountEncoder(16, statistics.max_out_degree) if plans else None
        slot_codes = [self.size.num_codes, self.size.num_codes, self.size.num_codes]
        self.context = Linear(width, width)
        self.slot = SumEmbedding(slot_codes, width)
        self.pointer = Pointer(width, key_width, dynamic=config.parent_features == "dynamic")
        self.first_parent = Linear(width, width, bias=False)
        self.first_stub = SumEmbedding([STUB_CODES], width)
        self.kind_embedding = SumEmbedding([kinds], width)
        self.degree_embedding = SumEmbedding([self.in_degree.num_codes], width)
        self.open_embedding = SumEmbedding([self.in_degree.num_codes], width)
        self.last_parent = Linear(width, width, bias=False)
        self.all_parents = Linear(width, width, bias=False)
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
            Linear(width, width, bias=False) if config.chosen_parents == "all" else None
        )

    @property
    def count_codes(self) -> CountCodes:
        """How counts are encoded."""
        return CountCodes(self.size, self.in_degree, self.out_degree)

    def size_logits(
        self, encoded_LD: Float[Tensor, "L D"], first_L: Bool[Tensor, " L"]
    ) -> Float[Tensor, "L K"]:
        """Return the logits of layer sizes; size 0 ends the graph and is excluded for layer 0."""
        logits_LK = self.size_readout(encoded_LD)
        empty_K = torch.arange(self.size.num_codes, device=first_L.device) == 0
        return logits_LK.masked_fill(first_L[:, None] & empty_K, -torch.inf)

    def context_state(
        self, encoded_ND: Float[Tensor, "N D"], slot_codes_N3: Int[Tensor, "N 3"]
    ) -> Float[Tensor, "N D"]:
        """Return the state from the previous token and the place in the layer (``CountCodes``)."""
        return self.context(encoded_ND) + self.slot(slot_codes_N3)

    def degree_state(
        self, state_ND: Float[Tensor, "N D"], kind_N: Int[Tensor, " N"]
    ) -> Float[Tensor, "N D"]:
        """Add the kind."""
        return state_ND + self.kind_embedding(kind_N[:, None])

    def further_state(
        self,
        state_QD: Float[Tensor, "Q D"],
        parent_QD: Float[Tensor, "Q D"],
        open_code_Q: Int[Tensor, " Q"],
        chosen_QD: Float[Tensor, "Q D"],
    ) -> Float[Tensor, "Q D"]:
        """Add the parent chosen last, how many remain (as a code), the sum of those chosen."""
        open_QD = self.open_embedding(open_code_Q[:, None])
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

    def fused_states(
        self, encoded_TD: Float[Tensor, "T D"], targets: Targets
    ) -> tuple[DecisionStates, Float[Tensor, "T d"]] | None:
        """Return the states of all decisions and the keys of tokens, where they are fused."""
        maps = (self.context, self.first_parent, self.last_parent, self.all_parents)
        tables = (
            self.slot,
            self.first_stub,
            self.kind_embedding,
            self.open_embedding,
            self.degree_embedding,
        )
        key = self.pointer.key
        dtype = product_dtype(encoded_TD, self)
        if dtype is None or self.chosen_parents is not None:
            return None
        weight_KD = torch.cat([each.weight for each in (*maps, key)])
        bias_K = F.pad(self.context.bias, (0, weight_KD.shape[0] - self.context.out_features))
        projection_TK = activated_product(None, weight_KD, bias_K, encoded_TD, dtype).float()
        weights = (each.weight for each in tables)
        return fused_states(projection_TK, targets, self.slot.offset_F, *weights)

    def chain(self, state_ND: Float[Tensor, "N D"]) -> ReadoutChain | None:
        """Return the readouts of further attributes and of out-degrees, where they are fused."""
        if product_dtype(state_ND, self) is None:
            return None
        plan = [] if self.plan_readout is None else [self.plan_readout]
        readouts = [cast(Readout, each) for each in self.other_readouts]
        tables = list(self.other_embeddings)[: self.num_chained]
        return readout_chain([*readouts, *plan], tables, state_ND)


def layer_size_loss(
    heads: Heads, encoded_TD: Float[Tensor, "T D"], targets: Targets
) -> Float[Tensor, ""]:
    """Return -log p of each layer's size, and of size 0 after the last layer, summed."""
    state_RD = gather_rows(encoded_TD, targets.size_token_R)
    size_R, first_R = targets.chosen.size_R, targets.opens_graph_R
    chain = readout_chain([heads.size_readout], [], state_RD)
    if chain is None:
        loss = _code_loss(heads.size_logits(state_RD, first_R), size_R)
    else:
        loss = chain.loss(state_RD, size_R[:, None], without_first_R=first_R)
    return loss + targets.chosen.inside_3[2]


def node_and_edge_losses(
    heads: Heads, encoded_TD: Float[Tensor, "T D"], targets: Targets
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return -log p of attributes and out-degrees, and of parents, in-degrees and types, summed."""
    chosen, found = targets.chosen, heads.fused_states(encoded_TD, targets)
    if found is None:
        states, key_Td = _states(heads, encoded_TD, targets), heads.pointer.key(encoded_TD)
    else:
        states, key_Td = found
    edge = _parent_loss(heads.pointer, targets, key_Td, states.before_ED)
    edge = edge + _readout_loss(heads.type_readout, states.after_ED, chosen.type_E)
    edge = edge + _readout_loss(heads.degree_readout, states.inner_qD, chosen.degree_q)
    node = _readout_loss(heads.kind_readout, states.kind_ND, chosen.attribute_NA[:, 0])
    node = node + _other_losses(heads, states.other_ND, targets)
    return node, edge + chosen.inside_3[1]


def _states(heads: Heads, encoded_TD: Float[Tensor, "T D"], targets: Targets) -> DecisionStates:
    parent_ED = gather_rows(encoded_TD, targets.parent_E)
    context_ND = heads.context_state(
        gather_rows(encoded_TD, targets.token_N - 1), targets.slot_codes_N3
    )
    first_ND = torch.zeros_like(context_ND).index_copy(
        0, targets.inner_q, gather_rows(parent_ED, targets.first_q)
    )
    stub_ND = heads.first_stub(targets.first_stub_N[:, None])
    kind_ND = context_ND + heads.first_parent(first_ND) + stub_ND
    degree_ND = heads.degree_state(kind_ND, targets.x_NA[:, 0])
    after_ED = heads.further_state(
        gather_rows(degree_ND, targets.node_E),
        parent_ED,
        targets.open_code_E,
        _sum_so_far(parent_ED, targets.rank_E) if heads.chosen_parents else parent_ED,
    )
    before_ED = torch.cat([after_ED[:1], after_ED[:-1]])
    first_E1 = (targets.rank_E == 0)[:, None]
    state_ED = torch.where(first_E1, gather_rows(context_ND, targets.node_E), before_ED)
    parents_ND = segment_mean(parent_ED, targets.node_E, targets.in_degree_N)
    in_degree_ND = heads.degree_embedding(targets.degree_code_N[:, None])
    other_ND = degree_ND + in_degree_ND + heads.all_parents(parents_ND)
    inner_qD = gather_rows(degree_ND, targets.inner_q)
    return DecisionStates(kind_ND, other_ND, after_ED, state_ED, inner_qD)


def _sum_so_far(parent_ED: Float[Tensor, "E D"], rank_E: Int[Tensor, " E"]) -> Float[Tensor, "E D"]:
    total_ED = to_float32(parent_ED).cumsum(0)
    before_ED = torch.cat([torch.zeros_like(total_ED[:1]), total_ED[:-1]])
    edge_E = torch.arange(rank_E.shape[0], device=rank_E.device)
    return total_ED - gather_rows(before_ED, edge_E - rank_E)


def graphs_of_rows(heads: Heads, batch: DAGBatch) -> dict[nn.Linear, Int[Tensor, " R"]]:
    """Return the graph of each row that teacher forcing hands to the linear maps with a bias.

    From the rows' inputs and the gradients of their outputs follow the gradients of each graph,
    which differential privacy clips one by one.
    """
    layout = BatchLayout.from_batch(batch)
    edges = Edges.from_batch(batch, layout)
    graph_N, graph_E = layout.graph_T[layout.token_N], layout.graph_T[edges.child_E]
    of_sizes = layout.graph_T[torch.cat([layout.first_token_L, layout.end_B]) - 1]
    pointer, plan = heads.pointer, heads.plan_readout
    readouts = [heads.kind_readout, *heads.other_readouts, *([] if plan is None else [plan])]
    of_edges = (pointer.query, pointer.far_query, pointer.code_scores, pointer.block_scores)
    return {
        heads.context: graph_N,
        heads.size_readout.project: of_sizes,
        heads.degree_readout.project: graph_N[edges.in_degree_N > 0],
        heads.type_readout.project: graph_E,
        **{readout.project: graph_N for readout in readouts if isinstance(readout, Readout)},
        **dict.fromkeys(of_edges, graph_E),
    }


def _other_losses(heads: Heads, state_ND: Tensor, targets: Targets) -> Tensor:
    loss, chosen = state_ND.new_zeros(()), targets.chosen
    chain = heads.chain(state_ND)
    if chain is not None:
        columns = [chosen.attribute_NA[:, 1:]]
        if heads.plan_readout is not None:
            columns.append(chosen.out_degree_N[:, None])
            loss = loss + chosen.inside_3[0]
        chosen_NA = torch.cat(columns, dim=1) if len(columns) > 1 else columns[0]
        return loss + chain.loss(state_ND, chosen_NA, targets.x_NA[:, 1:])
    for index, readout in enumerate(heads.other_readouts):
        loss = loss + _code_loss(readout(state_ND), chosen.attribute_NA[:, index + 1])
        state_ND = heads.after_other(state_ND, index, targets.x_NA[:, index + 1])
    if heads.plan_readout is None:
        return loss
    out_degree = _code_loss(heads.plan_readout(state_ND), chosen.out_degree_N)
    return loss + out_degree + chosen.inside_3[0]


def _parent_loss(pointer: Pointer, targets: Targets, key_Td: Tensor, state_ED: Tensor) -> Tensor:
    candidates, blocks = targets.candidates, targets.blocks
    projection_EK = pointer.projection(state_ED)
    if projection_EK is not None:
        key_Zd = block_sum(key_Td, blocks) / blocks.block
        return pointer_loss(projection_EK, key_Td, key_Zd, candidates)
    hidden_ED = pointer.activate(state_ED)
    tokens, far = candidates.tokens, candidates.blocks
    key_Pd = gather_rows(key_Td, tokens.candidate_P)
    score_P = pointer.tokens(hidden_ED, key_Pd, candidates.codes_P4, tokens)
    key_Zd = block_sum(key_Td, blocks) / blocks.block
    far_key_Pd = gather_rows(key_Zd, far.candidate_P)
    far_P = pointer.blocks(hidden_ED, far_key_Pd, candidates.block_codes_P, far)
    logit_P = torch.cat([score_P, far_P])
    return _ragged_loss(logit_P, candidates.softmax_P, candidates.chosen_G, candidates.padding_G)


def _ragged_loss(logit_P: Tensor, softmax_P: Tensor, chosen_G: Tensor, padding_G: Tensor) -> Tensor:
    """Return the cross entropy of ragged softmaxes, summed.

    ``padding_G`` is 1 for softmaxes that do not count and may be empty, else 0.
    """
    padding_G = padding_G.to(logit_P.dtype)
    with torch.no_grad():
        top_G = torch.full_like(padding_G, -torch.inf)
        top_G = top_G.scatter_reduce(0, softmax_P, logit_P, "amax")
    shifted_P = logit_P - top_G.index_select(0, softmax_P)
    total_G = padding_G.index_add(0, softmax_P, shifted_P.exp())
    loss_G = total_G.log() - shifted_P.index_select(0, chosen_G)
    return (loss_G * (1 - padding_G)).sum()


def _readout_loss(readout: Readout, state_ND: Tensor, code_N: Tensor) -> Tensor:
    chain = readout_chain([readout], [], state_ND)
    if chain is None:
        return _code_loss(readout(state_ND), code_N)
    return chain.loss(state_ND, code_N[:, None])


def _code_loss(logits_NK: Float[Tensor, "N K"], code_N: Int[Tensor, " N"]) -> Float[Tensor, ""]:
    return F.cross_entropy(logits_NK, code_N, reduction="sum", ignore_index=NOT_A_TARGET)
