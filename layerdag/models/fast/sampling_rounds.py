"""Rounds of sampling with fixed shapes: no list, no Python per node.

Rows advance independently. In a round, rows that are ready encode their newest token and start
their next node, candidates that lack parents draw some, and rows whose candidates lack none keep
one of them. A node with many parents holds up its own row alone. What a row does not do is
computed all the same and thrown away: on a GPU a round is one recording, in which nothing waits for
the host and whose time hardly depends on how much of it is used. Elsewhere, steps that no row needs
are left out.

Shape letters: A node attributes, B graphs, D width of a state, E edges, F feature columns, K codes,
O options, P pairs, Q decisions, R rows, T tokens, U uniforms, X selected graphs, p parents of a
node.
Pairs are candidates of graphs, decisions those of rows of the encoder.
"""

import math
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from layerdag.models.draws import sample_if_possible, unit_interval
from layerdag.models.fast.decisions import Heads
from layerdag.models.fast.layout import NEVER, stub_code
from layerdag.models.fast.neighbor_kinds import NATS_PER_VIOLATION, UNSEEN
from layerdag.models.fast.parent_draws import ParentDraws, ParentSpan
from layerdag.models.fast.particles import NATS_PER_FIRST, OWN_COLOR
from layerdag.models.fast.row_encoder import EncoderMemory, RowEncoder
from layerdag.models.fast.sampling_inputs import (
    CANDIDATE_STEP,
    SLOTS_PER_PARENT,
    Extent,
    RandomSlot,
    RowNumbers,
    SamplingTask,
)
from layerdag.models.fast.sampling_rows import (
    CandidateRows,
    GraphRows,
    Node,
    Phase,
    copy_rows,
    move_rows,
)
from layerdag.models.fast.tokens import Feature
from layerdag.models.layers import CountEncoder
from layerdag.runtime.rng import position_words, scrambled, slot_words

_FIRST, _LAST, _ALL, _CHOSEN = range(4)  # what a token adds to states as a parent


def _fixed_slots(heads: Heads) -> int:
    return int(RandomSlot.ATTRIBUTE) + len(heads.other_readouts)


@final
class SamplingRounds:
    """The rounds of some rows."""

    def __init__(
        self, task: SamplingTask, extent: Extent, memory: EncoderMemory | None = None
    ) -> None:
        modules, heads = task.modules, task.modules.heads
        self.task, self.extent, self.guidance = task, extent, task.guidance
        self.options, parents = task.options, task.max_parents
        device = modules.tokens.start_A.device
        self.numbers = RowNumbers.of(task, extent, device)
        self._row_B, self._row_P = self.numbers.row_B, self.numbers.row_P
        self._row_Q = self.numbers.row_Q
        self.graphs = GraphRows.idle(modules, extent, parents)
        if memory is None:
            shape = (self.numbers.row_R.shape[0], heads.context.in_features)
            like_RD = heads.context.weight.new_zeros(shape)
            memory = EncoderMemory.empty(modules.encoder, like_RD, extent.tokens)
        self.encoder = RowEncoder(task, extent, self.numbers, self.graphs, memory)
        self.tokens = self.encoder.tokens
        self.parents = ParentDraws(task, extent, self.numbers, self.graphs, self.tokens)
        candidates, states = self._row_P.shape[0], self._row_Q.shape[0]
        uniforms = _fixed_slots(heads) + 1
        self.candidates = CandidateRows.empty(modules, candidates, states, parents, uniforms)
        option_P = torch.arange(candidates, device=device) % task.options
        self._candidate_seed_P = option_P * CANDIDATE_STEP
        further = int(RandomSlot.FURTHER_PARENT)
        slots = torch.arange(further, further + SLOTS_PER_PARENT * (parents + 1), device=device)
        self._parent_word_p3 = slot_words(slots).view(-1, SLOTS_PER_PARENT)
        fixed = [*range(_fixed_slots(heads)), int(RandomSlot.CHOICE)]
        self._word_U = slot_words(torch.tensor(fixed, device=device))
        self._parent_p = torch.arange(parents, device=device)
        self._weighs = task.options > 1
        self._window = self.parents.window()

    def copy_rows(self, target_X: Int[Tensor, " X"], source_X: Int[Tensor, " X"]) -> None:
        """Let rows go on as copies of others that are ready, each with its own sample and seed."""
        own_sample_X, own_seed_X = self.graphs.sample_B[target_X], self.graphs.seed_B[target_X]
        copy_rows(self.graphs, target_X, source_X)
        self.graphs.sample_B[target_X], self.graphs.seed_B[target_X] = own_sample_X, own_seed_X
        target_R, source_R = (
            self.guidance.rows(row_X, self.extent.rows) for row_X in (target_X, source_X)
        )
        copy_rows(self.tokens, target_R, source_R)
        self.encoder.memory.copy_rows(target_R, source_R)

    def moved(self, row_X: Int[Tensor, " X"], extent: Extent) -> "SamplingRounds":
        """Return the rounds of the rows ``row_X``, with room for another extent."""
        rows, options = self.extent.rows, self.options
        option_O = torch.arange(options, device=row_X.device)
        candidate_P = (row_X[:, None] * options + option_O).flatten()
        row_R, state_Q = (
            self.guidance.rows(row_X, rows),
            self.guidance.rows(candidate_P, rows * options),
        )
        new = SamplingRounds(self.task, extent, self.encoder.memory.moved(row_R, extent.tokens))
        move_rows(self.graphs, new.graphs, row_X)
        move_rows(self.tokens, new.tokens, row_R)
        if not self.extent.pooled:
            new.tokens.pool()
        move_rows(self.candidates, new.candidates, candidate_P, state_Q)
        new._window = new.parents.window()
        return new

    def round(self, parents: int) -> None:
        """Do a round in which candidates draw up to so many parents."""
        self.start_nodes(self.encoder.encode())
        for _ in range(parents):
            self.add_parents()
        self.keep_candidates()

    def round_as_needed(self, parents: int) -> None:
        """Do such a round without the steps that no row needs; the host waits to know which."""
        if bool(self._ready_rows().any()):
            self.start_nodes(self.encoder.encode())
        for _ in range(parents):
            if not bool(self._adding_candidates().any()):
                break
            self.add_parents()
        if bool(self._complete_rows().any()):
            self.keep_candidates()

    def _ready_rows(self) -> Bool[Tensor, " B"]:
        return (self.graphs.phase_B == int(Phase.READY)) & ~self.graphs.held_B

    def _adding_candidates(self) -> Bool[Tensor, " P"]:
        open_B = self.graphs.phase_B == int(Phase.OPEN)
        return open_B[self._row_P] & (self.candidates.rank_P < self.candidates.degree_P)

    def _complete_rows(self) -> Bool[Tensor, " B"]:
        lacks_P = self.candidates.rank_P < self.candidates.degree_P
        open_B = self.graphs.phase_B == int(Phase.OPEN)
        return open_B & ~lacks_P.view(-1, self.options).any(1)

    # The next node.

    def start_nodes(self, encoded_RD: Float[Tensor, "R D"]) -> None:
        """Start the next node of rows that are ready, unless their graphs end; draw candidates."""
        graphs = self.graphs
        word_P, uniform_PU = self._next_uniforms()
        starts_B, size_B = self._layer_sizes(encoded_RD, self._of_first(uniform_PU))
        self._enter_layer(starts_B, size_B)
        row_BF = torch.zeros_like(graphs.node_BTF[:, 0])
        row_BF[:, Node.LAST].fill_(NEVER)
        row_BF[:, Node.LAYER].copy_(graphs.feature_BF[:, Feature.LAYER])
        graphs.node_BTF.flatten(0, 1).index_copy_(0, self._newest_places(starts_B), row_BF)
        starts_P = starts_B[self._row_P]
        candidates = self.candidates
        candidates.word_P.copy_(torch.where(starts_P, word_P, candidates.word_P))
        kept_PU = torch.where(starts_P[:, None], uniform_PU, candidates.uniform_PU)
        candidates.uniform_PU.copy_(kept_PU)
        self._draw_candidates(encoded_RD, starts_B)
        graphs.phase_B.copy_(graphs.phase_B.masked_fill(starts_B, int(Phase.OPEN)))

    def _layer_sizes(self, encoded_RD: Tensor, uniform_BU: Tensor) -> tuple[Tensor, Tensor]:
        """Return which rows start a node, and the size of its layer if that is new; end graphs."""
        graphs, request, heads = self.graphs, self.task.request, self.task.modules.heads
        feature_BF = graphs.feature_BF
        position_B, left_B = feature_BF[:, Feature.POSITION], feature_BF[:, Feature.LEFT]
        first_B, complete_B = position_B == 0, left_B == 0
        number_B = feature_BF[:, Feature.LAYER] + ~first_B
        logits_BK = self.guidance.merge(
            heads.size_logits(encoded_RD, self.guidance.duplicate(first_B))
        )
        size_B = self._count(heads.size, logits_BK, uniform_BU, RandomSlot.LAYER_SIZE)
        ended_B = complete_B & (size_B == 0)
        cut_B = (complete_B & (number_B >= request.max_layers)) | (position_B >= request.max_nodes)
        cut_B = (cut_B & ~ended_B) | ~graphs.valid_B | (ended_B & ~graphs.may_end_B)
        ready_B = self._ready_rows()
        graphs.truncated_B.logical_or_(ready_B & cut_B)
        stops_B = ready_B & (ended_B | cut_B)
        graphs.phase_B.copy_(graphs.phase_B.masked_fill(stops_B, int(Phase.IDLE)))
        return ready_B & ~stops_B, size_B.clamp(min=1)

    def _enter_layer(self, starts_B: Bool[Tensor, " B"], size_B: Int[Tensor, " B"]) -> None:
        """Let features be those of the next node before its decisions, where one starts."""
        graphs = self.graphs
        old = dict(zip(Feature, graphs.feature_BF.unbind(1), strict=True))
        new_layer_B = old[Feature.LEFT] == 0
        inner_B = new_layer_B & (old[Feature.POSITION] > 0)
        position_B = old[Feature.POSITION] + 1
        index_B = (old[Feature.INDEX] + 1).masked_fill(new_layer_B, 0)
        size_B = torch.where(new_layer_B, size_B, old[Feature.SIZE])
        zero_B, open_layer_B = torch.zeros_like(index_B), old[Feature.OPEN_LAYER]
        new = {
            Feature.DEGREE: zero_B,
            Feature.OUT_DEGREE: zero_B,
            Feature.SIZE: size_B,
            Feature.INDEX: index_B,
            Feature.LEFT: size_B - index_B - 1,
            Feature.OPEN: old[Feature.OPEN],
            Feature.OPEN_LAYER: open_layer_B.masked_fill(new_layer_B, 0),
            Feature.OPEN_BEFORE: torch.where(new_layer_B, open_layer_B, old[Feature.OPEN_BEFORE]),
            Feature.POSITION: position_B,
            Feature.LAYER: old[Feature.LAYER] + inner_B,
        }
        for values_B, next_B in (
            (
                graphs.before_start_B,
                torch.where(inner_B, graphs.layer_start_B, graphs.before_start_B),
            ),
            (graphs.layer_start_B, torch.where(new_layer_B, position_B, graphs.layer_start_B)),
            (graphs.sibling_B, graphs.sibling_B.masked_fill(new_layer_B, NEVER)),
        ):
            values_B.copy_(torch.where(starts_B, next_B, values_B))
        new_BF = torch.stack([new[feature] for feature in Feature], dim=1)
        graphs.feature_BF.copy_(torch.where(starts_B[:, None], new_BF, graphs.feature_BF))

    def _draw_candidates(self, encoded_RD: Tensor, starts_B: Tensor) -> None:
        graphs, candidates, modules = self.graphs, self.candidates, self.task.modules
        heads, duplicate = modules.heads, self.guidance.duplicate
        size_B, index_B = (graphs.feature_BF[:, f] for f in (Feature.SIZE, Feature.INDEX))
        slot_B3 = heads.count_codes.slots(size_B, index_B)
        context_RD = heads.context_state(encoded_RD, duplicate(slot_B3))
        is_child_P = (graphs.feature_BF[:, Feature.LAYER] > 0)[self._row_P]
        zero_P = torch.zeros_like(self._row_P)
        span = ParentSpan(graphs.before_start_B, graphs.layer_start_B, graphs.sibling_B)
        slot = int(RandomSlot.FIRST_PARENT)
        self._window = self.parents.window()
        uniform_P2 = candidates.uniform_PU[:, slot : slot + 2]
        first_P = self.parents.draw(context_RD, self._window, span, uniform_P2)
        first_P = first_P.where(is_child_P, 0)
        node_PF = self._nodes(first_P)
        stub_P = stub_code(node_PF[:, Node.USED], node_PF[:, Node.OUT_DEGREE]).where(is_child_P, 0)
        state_QD = context_RD[self._row_Q] + heads.first_stub(duplicate(stub_P)[:, None])
        added_QD = self._projection(duplicate(first_P), _FIRST)
        state_QD = state_QD + added_QD.masked_fill(~duplicate(is_child_P)[:, None], 0.0)
        kind_P = self._kinds(state_QD, first_P)
        state_QD = heads.degree_state(state_QD, duplicate(kind_P))
        degree_P = self._in_degrees(state_QD, kind_P, first_P)
        starts_P = starts_B[self._row_P]
        for values_P, next_P in (
            (candidates.rank_P, zero_P),
            (candidates.first_P, first_P),
            (candidates.kind_P, kind_P),
            (candidates.degree_P, degree_P),
            (candidates.type_state_P, modules.type_sets.start(kind_P, degree_P)),
            (candidates.last_P, first_P),
        ):
            values_P.copy_(torch.where(starts_P, next_P, values_P))
        starts_P1, starts_Q1 = starts_P[:, None], duplicate(starts_P)[:, None]
        candidates.parent_Pp.masked_fill_(starts_P1, 0)
        candidates.kind_state_QD.copy_(torch.where(starts_Q1, state_QD, candidates.kind_state_QD))
        candidates.total_QD.masked_fill_(starts_Q1, 0.0)
        candidates.chosen_QD.masked_fill_(starts_Q1, 0.0)
        if self._weighs:
            neighbors = modules.neighbors
            for weight_P, start_P in (
                (candidates.weight_P, neighbors.offset_K[kind_P]),
                (candidates.parents_state_P, neighbors.of_parents.start_K[kind_P]),
            ):
                weight_P.copy_(torch.where(starts_P, start_P, weight_P))
            candidates.color_P2.masked_fill_(starts_P1, 0)

    def _kinds(self, state_QD: Tensor, first_P: Tensor) -> Tensor:
        task, sample_P = self.task, self.graphs.sample_B[self._row_P]
        logits_PK = self.guidance.merge(task.modules.heads.kind_readout(state_QD))
        logits_PK = task.modules.constraints.limit_kinds(logits_PK, first_P)
        logits_PK = task.masks.allowed.limit(logits_PK, task.masks.graph_BF[sample_P], 0)
        slot = int(RandomSlot.KIND)
        return sample_if_possible(logits_PK, self.candidates.uniform_PU[:, slot])

    def _in_degrees(self, state_QD: Tensor, kind_P: Tensor, first_P: Tensor) -> Tensor:
        modules, uniform_PU = self.task.modules, self.candidates.uniform_PU
        counter, constraints = modules.heads.in_degree, modules.constraints
        logits_PK = self.guidance.merge(modules.heads.degree_readout(state_QD))
        logits_PK = constraints.limit_degrees(logits_PK, counter, kind_P, first_P)
        logits_PK = modules.type_sets.limit_degrees(logits_PK, counter, kind_P)
        degree_P = self._count(counter, logits_PK, uniform_PU, RandomSlot.IN_DEGREE)
        return constraints.clamp(degree_P, kind_P, first_P)

    # Parents.

    def add_parents(self) -> None:
        """Settle one more parent of candidates that lack some, and draw the next one."""
        candidates, modules, duplicate = self.candidates, self.task.modules, self.guidance.duplicate
        heads, rank_P, parent_P = modules.heads, candidates.rank_P, candidates.last_P
        adds_P = self._adding_candidates()
        adds_Q1 = duplicate(adds_P)[:, None]
        left_P = (candidates.degree_P - rank_P - 1).clamp(min=0)
        parent_Q = duplicate(parent_P)
        left_QD = heads.open_embedding(heads.in_degree.encode(duplicate(left_P))[:, None])
        state_QD = candidates.kind_state_QD + self._projection(parent_Q, _LAST) + left_QD
        all_QD = self._projection(parent_Q, _ALL)
        candidates.total_QD.add_(all_QD.masked_fill(~adds_Q1, 0.0))
        if heads.chosen_parents is not None:
            chosen_QD = self._projection(parent_Q, _CHOSEN)
            candidates.chosen_QD.add_(chosen_QD.masked_fill(~adds_Q1, 0.0))
            state_QD = state_QD + candidates.chosen_QD
        uniform_P3 = unit_interval(candidates.word_P[:, None] ^ self._parent_word_p3[rank_P])
        type_P = self._edge_types(state_QD, adds_P, uniform_P3[:, 2])
        column_P1 = rank_P.where(adds_P, candidates.parent_Pp.shape[1] - 1)[:, None]
        candidates.parent_Pp.scatter_(1, column_P1, parent_P[:, None])
        candidates.type_Pp.scatter_(1, column_P1, type_P[:, None])
        if self._weighs:
            self._weigh_parents(adds_P, parent_P)
        span = ParentSpan(left_P, parent_P, parent_P)
        next_P = self.parents.draw(state_QD, self._window, span, uniform_P3)
        candidates.last_P.copy_(next_P.where(adds_P & (left_P > 0), parent_P))
        candidates.rank_P.add_(adds_P)

    def _edge_types(self, state_QD: Tensor, adds_P: Tensor, uniform_P: Tensor) -> Tensor:
        type_sets, candidates = self.task.modules.type_sets, self.candidates
        logits_PK = self.guidance.merge(self.task.modules.heads.type_readout(state_QD))
        logits_PK = type_sets.limit(logits_PK, candidates.type_state_P)
        type_P = sample_if_possible(logits_PK, uniform_P)
        read_P = type_sets.read(candidates.type_state_P, type_P)
        candidates.type_state_P.copy_(read_P.where(adds_P, candidates.type_state_P))
        return type_P

    def _weigh_parents(self, adds_P: Bool[Tensor, " P"], parent_P: Int[Tensor, " P"]) -> None:
        neighbors, candidates = self.task.modules.neighbors, self.candidates
        node_PF = self._nodes(parent_P)
        state_P, before_P = candidates.parents_state_P, node_PF[:, Node.CHILDREN]
        read_P = neighbors.of_parents.read(state_P, node_PF[:, Node.KIND])
        state_P.copy_(read_P.where(adds_P, state_P))
        after_P = neighbors.of_children.read(before_P, candidates.kind_P)
        broken_P = adds_P & (after_P == UNSEEN) & (before_P != UNSEEN)
        candidates.weight_P.sub_(broken_P.float(), alpha=NATS_PER_VIOLATION)
        color_P2 = node_PF[:, Node.COLOR_0 : Node.COLOR_1 + 1]
        candidates.color_P2.add_(color_P2.masked_fill(~adds_P[:, None], 0))

    # The node that is kept.

    def keep_candidates(self) -> None:
        """Keep one candidate of every row of which none lacks parents: the newest node."""
        graphs, candidates, heads = self.graphs, self.candidates, self.task.modules.heads
        duplicate = self.guidance.duplicate
        done_B = self._complete_rows()
        chosen_B = self._row_B * self.options
        colors = self._colors() if self._weighs else None
        if colors is not None:
            chosen_B = chosen_B + self._choices(done_B, colors[2])
        kind_B, degree_B, first_B = (
            values_P[chosen_B]
            for values_P in (candidates.kind_P, candidates.degree_P, candidates.first_P)
        )
        parent_Bp, type_Bp = candidates.parent_Pp[chosen_B, :-1], candidates.type_Pp[chosen_B, :-1]
        states = self.guidance.rows(chosen_B, self._row_P.shape[0])
        degree_RD = heads.degree_embedding(duplicate(heads.in_degree.encode(degree_B))[:, None])
        mean_RD = candidates.total_QD[states] / duplicate(degree_B).clamp(min=1)[:, None]
        state_RD = candidates.kind_state_QD[states] + degree_RD + mean_RD
        code_BA, out_degree_B = self._attributes(state_RD, kind_B)
        for values, next_ in (
            (graphs.sibling_B, first_B.masked_fill(first_B == 0, NEVER)),
            (graphs.parent_Bp, parent_Bp),
            (graphs.type_Bp, type_Bp),
            (graphs.code_BA, code_BA),
        ):
            done = done_B.view(-1, *(1,) * (values.dim() - 1))
            values.copy_(torch.where(done, next_, values))
        self._connect(done_B, parent_Bp, kind_B, degree_B)
        self._enter(done_B, code_BA, out_degree_B)
        if colors is not None:
            self._enter_ancestry(done_B, kind_B, [color_P[chosen_B] for color_P in colors])
        self._put_out(done_B, code_BA, parent_Bp, type_Bp, degree_B)
        every = self.task.hold_every
        if every:
            due_B = graphs.feature_BF[:, Feature.POSITION] % every == 0
            graphs.held_B.copy_(torch.where(done_B, due_B, graphs.held_B))
        graphs.phase_B.copy_(graphs.phase_B.masked_fill(done_B, int(Phase.READY)))

    def _choices(self, done_B: Tensor, ancestry_P: Tensor) -> Tensor:
        graphs, candidates, neighbors = self.graphs, self.candidates, self.task.modules.neighbors
        broken_P = ~neighbors.of_parents.final_R[candidates.parents_state_P]
        weight_BO = (candidates.weight_P - NATS_PER_VIOLATION * broken_P).view(-1, self.options)
        ancestry_BO = ancestry_P.view(-1, self.options)
        position_T = torch.arange(graphs.ancestry_BT.shape[1], device=done_B.device)
        position_B1 = graphs.feature_BF[:, Feature.POSITION, None]
        known_BT = (position_T > 0) & (position_T < position_B1)
        same_BOT = ancestry_BO[:, :, None] == graphs.ancestry_BT[:, None]
        occurred_BO = (same_BOT & known_BT[:, None]).any(2)
        gain_B = weight_BO.logsumexp(1) - math.log(self.options)
        graphs.log_weight_B.add_(gain_B.where(done_B, 0.0))
        logits_BO = weight_BO - NATS_PER_FIRST * ~occurred_BO
        return sample_if_possible(logits_BO, self._of_first(candidates.uniform_PU)[:, -1])

    def _colors(self) -> tuple[Int[Tensor, " P"], Int[Tensor, " P"], Int[Tensor, " P"]]:
        """Return the hashes of the candidates' ancestries at radius 0, 1 and 2."""
        sum_P2 = self.candidates.color_P2
        color_0 = scrambled(self.candidates.kind_P + 1)
        color_1 = scrambled(color_0 * OWN_COLOR + sum_P2[:, 0])
        return color_0, color_1, scrambled(color_1 * OWN_COLOR + sum_P2[:, 1])

    def _attributes(self, state_RD: Tensor, kind_B: Tensor) -> tuple[Tensor, Tensor]:
        graphs, masks, modules = self.graphs, self.task.masks, self.task.modules
        heads, codes = modules.heads, [kind_B]
        uniform_BU = self._of_first(self.candidates.uniform_PU)
        allowed_BF = masks.graph_BF[graphs.sample_B] & masks.given(0, kind_B)
        for index, readout in enumerate(heads.other_readouts):
            logits_BK = self.guidance.merge(readout(state_RD))
            logits_BK = modules.constraints.limit_attributes(logits_BK, index)
            logits_BK = masks.allowed.limit(logits_BK, allowed_BF, index + 1)
            slot = int(RandomSlot.ATTRIBUTE) + index
            code_B = sample_if_possible(logits_BK, uniform_BU[:, slot])
            state_RD = heads.after_other(state_RD, index, self.guidance.duplicate(code_B))
            allowed_BF = allowed_BF & masks.given(index + 1, code_B)
            codes.append(code_B)
        code_BA = torch.stack(codes, dim=1)
        if heads.out_degree is None or heads.plan_readout is None:
            return code_BA, torch.zeros_like(kind_B)
        logits_BK = self.guidance.merge(heads.plan_readout(state_RD))
        slot = RandomSlot.OUT_DEGREE
        return code_BA, self._count(heads.out_degree, logits_BK, uniform_BU, slot)

    def _connect(self, done_B: Tensor, parent_Bp: Tensor, kind_B: Tensor, degree_B: Tensor) -> None:
        graphs = self.graphs
        edge_Bp = done_B[:, None] & (self._parent_p < degree_B[:, None])
        place_Bp = parent_Bp.where(edge_Bp, self.extent.tokens)
        place_Bp = (self._row_B * graphs.node_BTF.shape[1])[:, None] + place_Bp
        node_BpF = graphs.node_BTF.flatten(0, 1)[place_Bp]
        columns = list(node_BpF.unbind(2))
        feature_BF, one_Bp = graphs.feature_BF, edge_Bp.long()
        near_Bp = edge_Bp & (columns[Node.LAYER] == (feature_BF[:, Feature.LAYER, None] - 1))
        columns[Node.USED] = columns[Node.USED] + one_Bp
        columns[Node.ROOM] = columns[Node.ROOM] - one_Bp
        columns[Node.LAST] = feature_BF[:, Feature.POSITION, None].expand_as(one_Bp)
        if self._weighs:
            columns[Node.CHILDREN] = self.task.modules.neighbors.of_children.read(
                columns[Node.CHILDREN], kind_B[:, None].expand_as(one_Bp).contiguous()
            )
        graphs.node_BTF.flatten(0, 1).index_copy_(
            0, place_Bp.flatten(), torch.stack(columns, dim=2).flatten(0, 1)
        )
        degree_B, near_B = one_Bp.sum(1), near_Bp.sum(1)
        feature_BF[:, Feature.DEGREE].add_(degree_B)
        feature_BF[:, Feature.OPEN].sub_(degree_B)
        feature_BF[:, Feature.OPEN_BEFORE].sub_(near_B)

    def _enter(self, done_B: Tensor, code_BA: Tensor, out_degree_B: Tensor) -> None:
        graphs, modules, kind_B = self.graphs, self.task.modules, code_BA[:, 0]
        feature_BF = graphs.feature_BF
        predicted = modules.heads.out_degree is not None
        room_B = modules.constraints.capacity(kind_B, out_degree_B if predicted else None)
        place_B = self._newest_places(done_B)
        for column, values_B in ((Node.OUT_DEGREE, out_degree_B), (Node.ROOM, room_B)):
            graphs.node_BTF.flatten(0, 1)[:, column].index_copy_(0, place_B, values_B)
        for feature in (Feature.OUT_DEGREE, Feature.OPEN, Feature.OPEN_LAYER):
            feature_BF[:, feature].add_(out_degree_B.where(done_B, 0))

    def _enter_ancestry(self, done_B: Tensor, kind_B: Tensor, colors: Sequence[Tensor]) -> None:
        """Let later weights see the newest nodes, by hashes at radius 0, 1 and 2."""
        graphs, place_B = self.graphs, self._newest_places(done_B)
        start_B = self.task.modules.neighbors.of_children.start_K[kind_B]
        # Ancestries are hashed from scrambled hashes of the parents.
        color_B2 = scrambled(torch.stack(list(colors[:2]), dim=1))
        of_node_B4 = torch.cat([torch.stack([kind_B, start_B], dim=1), color_B2], dim=1)
        columns = slice(Node.KIND, Node.COLOR_1 + 1)
        graphs.node_BTF.flatten(0, 1)[:, columns].index_copy_(0, place_B, of_node_B4)
        graphs.ancestry_BT.flatten().index_copy_(0, place_B, colors[2])

    def _put_out(
        self, done_B: Tensor, code_BA: Tensor, parent_Bp: Tensor, type_Bp: Tensor, degree_B: Tensor
    ) -> None:
        graphs = self.graphs
        position_B = graphs.feature_BF[:, Feature.POSITION]
        graphs.x_BTA.flatten(0, 1).index_copy_(0, self._newest_places(done_B), code_BA)
        edge_Bp = done_B[:, None] & (self._parent_p < degree_B[:, None])
        place_Bp = (graphs.edges_B[:, None] + self._parent_p).where(edge_Bp, self.extent.edges)
        graphs.parent_BE.scatter_(1, place_Bp, parent_Bp)
        graphs.child_BE.scatter_(1, place_Bp, position_B[:, None].expand_as(place_Bp))
        graphs.type_BE.scatter_(1, place_Bp, type_Bp)
        graphs.edges_B.add_(edge_Bp.sum(1))

    # What several of them need.

    def _newest_places(self, writes_B: Bool[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Return where the newest nodes lie among those of all rows, or where nobody reads."""
        position_B = self.graphs.feature_BF[:, Feature.POSITION]
        first_B = self._row_B * self.graphs.node_BTF.shape[1]
        return first_B + position_B.where(writes_B, self.extent.tokens)

    def _nodes(self, position_P: Int[Tensor, " P"]) -> Int[Tensor, "P F"]:
        place_P = self._row_P * self.graphs.node_BTF.shape[1] + position_P
        return self.graphs.node_BTF.flatten(0, 1)[place_P]

    def _projection(self, position_Q: Int[Tensor, " Q"], number: int) -> Float[Tensor, "Q D"]:
        projection_RTK = self.tokens.projection_RTK
        width = self.candidates.kind_state_QD.shape[1]
        place_Q = (self._row_Q * self.extent.tokens + position_Q) * (
            projection_RTK.shape[2] // width
        )
        return projection_RTK.view(-1, width)[place_Q + number]

    def _next_uniforms(self) -> tuple[Int[Tensor, " P"], Float[Tensor, "P U"]]:
        """Return hashes of seed and position of every candidate for the next node, and uniforms.

        Of these there is one for each decision but those on further parents; the last one is for
        the choice of a candidate. The first candidate of a row has the seed of its graph.
        """
        graphs = self.graphs
        position_P = graphs.feature_BF[self._row_P, Feature.POSITION] + 1
        word_P = position_words(graphs.seed_B[self._row_P] + self._candidate_seed_P, position_P)
        return word_P, unit_interval(word_P[:, None] ^ self._word_U)

    def _of_first(self, uniform_PU: Float[Tensor, "P U"]) -> Float[Tensor, "B U"]:
        return uniform_PU[:: self.options]

    def _count(
        self, counter: CountEncoder, logits_XK: Tensor, uniform_XU: Tensor, slot: RandomSlot
    ) -> Tensor:
        first = int(slot)
        code_X = sample_if_possible(logits_XK, uniform_XU[:, first])
        return counter.decode(code_X, uniform_XU[:, first + 1])
