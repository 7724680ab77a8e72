"""A sampler in torch: rounds of fixed shapes, with new graphs in the rows of finished ones.

As many graphs are drawn side by side as there is memory for. Each goes its own way through its
nodes; where one ends, the next one of the request begins, so that none waits for the longest. The
host looks at the rows every few rounds: it replaces particles, which wait for each other, takes
finished graphs, starts others and makes room. All rows wait for each other where a check of partial
graphs runs on the host, node by node, and with an encoder that has one position for all rows.

On a GPU a round is recorded once and then launched as a whole.

Shape letters: A node attributes, B graphs, E edges, F feature columns, N nodes, T tokens, X
selected graphs, p parents of a node.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from layerdag.models.base import SampleRequest, SampleResult
from layerdag.models.cuda_graphs import record_cuda_graph
from layerdag.models.fast.encoder import Encoder, has_own_positions
from layerdag.models.fast.networks import FastNetworks
from layerdag.models.fast.particles import INTERVAL, resampled_rows
from layerdag.models.fast.sampling_inputs import Extent, SamplingTask
from layerdag.models.fast.sampling_output import OutputBuffer
from layerdag.models.fast.sampling_rounds import SamplingRounds
from layerdag.models.fast.sampling_rows import Node, Phase
from layerdag.models.fast.tokens import Feature
from layerdag.runtime.reading import available_memory

PARENTS_PER_ROUND = 3
"""Parents that a candidate draws in a round; a node with more takes several rounds."""

_ROUNDS_PER_LOOK = 4
"""Recorded rounds after which the host looks at the rows."""

_FEWER_ROWS = 0.8
"""Share of rows still drawn at which the others are given up, once no graph is left to start."""

_FEWER_RECORDED_ROWS = 0.5
"""The same where a round has to be recorded anew."""

_LOOKS_WITHOUT_NODES = 8
"""Looks of the host in a row that may find no new node, where nodes have few parents."""

_MEMORY_SHARE = 0.25
"""Of the free memory of a device, what rows may take; where they grow, there are two of each, and
a copy of a part."""

_USUAL_NODES = 512.0
"""Nodes for which there is room in a graph of which no number is asked for."""


def is_recorded(encoder: Encoder, device: torch.device) -> bool:
    """Return whether rounds are recorded once and repeated."""
    return device.type == "cuda" and has_own_positions(encoder)


@dataclass(frozen=True, eq=False)
class _Look:
    """What the host sees of the rows."""

    idle_B: Bool[np.ndarray, " B"]  # whether a row has nothing to do
    held_B: Bool[np.ndarray, " B"]  # whether it is ready and waits for the host
    position_B: Int[np.ndarray, " B"]  # position of its newest node
    edges_B: Int[np.ndarray, " B"]
    truncated_B: Bool[np.ndarray, " B"]  # whether a limit ended its graph


@final
class TensorSampler:
    """Sampler of the graphs of one request.

    Consecutive ``request.best_of`` graphs are the particles of one graph.
    """

    def __init__(self, modules: FastNetworks, request: SampleRequest) -> None:
        self.device = modules.tokens.embedding.weight.device
        self.request, self.check = request, request.check
        task, self._particles = SamplingTask.of(modules, request), request.best_of
        self._lockstep = request.check is not None or not has_own_positions(modules.encoder)
        self._weighs, self.seed_B = task.weighs, task.seed_B
        every = 1 if self._lockstep else INTERVAL if task.weighs else 0
        self.task = replace(task, hold_every=every)
        self._recorded = is_recorded(modules.encoder, self.device)
        self._per_look = _ROUNDS_PER_LOOK if self._recorded and not self._lockstep else 1
        self._again: Callable[[], None] | None = None
        self.output = OutputBuffer(self.seed_B)
        # Two attention blocks, beyond which there are pooled ones, and what one look needs.
        tokens = max(2, -(-(_ROUNDS_PER_LOOK + 1) // modules.block)) * modules.block
        edges = 2 * tokens + _ROUNDS_PER_LOOK * self.task.max_parents
        rows = len(request.seeds)
        if not self._lockstep:
            rows = min(rows, self._rows_in_memory())
            rows = max(rows // self._particles, 1) * self._particles
        self.rounds = SamplingRounds(self.task, Extent(rows, tokens, edges, modules.block))
        self.sample_B = np.full(rows, -1)
        self._next_sample = 0
        self._start(np.arange(rows))

    def run(self) -> SampleResult:
        """Sample every graph to its end and return them in the order of the request."""
        if self.check is not None:
            self.check.start(self.sample_B.shape[0])
        before, same = -1, 0
        while (self.sample_B >= 0).any():
            self.advance(self._per_look)
            look = self._look()
            done = int(look.position_B.sum()) + int(look.idle_B.sum())
            before, same = done, same + 1 if done == before else 0
            # A node with many parents takes several looks; a recording that does nothing, for ever.
            if same > _LOOKS_WITHOUT_NODES + self.task.max_parents:
                raise RuntimeError(
                    f"rounds of sampling on {self.device} draw no nodes, a fault of layerdag or of "
                    "the driver; sample on the processor (device=cpu)"
                )
            self._let_go_on(look)
            self._take_finished(look)
            self._make_room(look)
        return self.output.result()

    def _rows_in_memory(self) -> int:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # what earlier samplers had counts as taken otherwise
            free, _ = torch.cuda.mem_get_info(self.device)
        else:
            free = available_memory()
        task, modules, request = self.task, self.task.modules, self.request
        asked_B = request.sizes_B2[:, 0].nan_to_num(_USUAL_NODES)
        nodes = min(request.max_nodes, 2 * int(asked_B.max())) + 2 * modules.block
        width = task.guidance.passes * modules.heads.context.out_features
        of_token = 4 * width * (modules.encoder.depth + 5) + 8 * (len(Node) + 16)
        # A window of keys and values, and of features of candidate parents, at several stages.
        of_window = 2 * modules.block * (32 * width + 128 * task.options)
        of_candidate = 16 * width + 32 * task.max_parents
        of_row = nodes * of_token + of_window + task.options * of_candidate
        return int(_MEMORY_SHARE * free) // of_row

    def advance(self, count: int) -> None:
        """Do so many rounds, for which there must be room."""
        for _ in range(count):
            if not self._recorded:
                self.rounds.round_as_needed(PARENTS_PER_ROUND)
            elif self._again is None:
                work = partial(self.rounds.round, PARENTS_PER_ROUND)
                self._again = record_cuda_graph(work, None, self.device)[1]
            else:
                self._again()

    def _look(self) -> _Look:
        graphs = self.rounds.graphs
        columns = (
            graphs.phase_B == int(Phase.IDLE),
            graphs.held_B,
            graphs.feature_BF[:, Feature.POSITION],
            graphs.edges_B,
            graphs.truncated_B,
        )
        found = torch.stack([column.long() for column in columns]).cpu().numpy()
        idle_B, held_B, position_B, edges_B, truncated_B = found
        held_B = held_B.astype(bool) & ~idle_B.astype(bool)
        return _Look(idle_B.astype(bool), held_B, position_B, edges_B, truncated_B.astype(bool))

    # Particles and checks.

    def _let_go_on(self, look: _Look) -> None:
        group = self.sample_B.shape[0] if self._lockstep else self._particles
        waits_B = look.held_B | look.idle_B
        complete_B = waits_B.reshape(-1, group).all(axis=1).repeat(group)
        row_X = np.flatnonzero(complete_B & look.held_B)
        if row_X.shape[0] == 0:
            return
        graphs = self.rounds.graphs
        valid_B = np.ones(waits_B.shape[0], dtype=bool)
        if self.check is not None:
            found_B = self._checked(look)
            valid_B = graphs.valid_B.cpu().numpy() & found_B.numpy() | look.idle_B
        if self._particles > 1:
            valid_B = self._replace_particles(look, row_X, valid_B)
        if self.check is not None:
            graphs.valid_B.copy_(torch.from_numpy(valid_B))
            graphs.may_end_B.copy_(self.check.may_end())
        graphs.held_B[torch.from_numpy(row_X).to(self.device)] = False

    def _checked(self, look: _Look) -> Bool[Tensor, " B"]:
        assert self.check is not None
        graphs = self.rounds.graphs
        parent_Bp, code_BA = (
            values.to("cpu", copy=True) for values in (graphs.parent_Bp, graphs.code_BA)
        )
        parent_Bp[torch.from_numpy(look.idle_B)] = 0
        row_X, column_X = parent_Bp.nonzero().unbind(1)
        type_X = graphs.type_Bp.cpu()[row_X, column_X]
        return self.check.add(code_BA, row_X, parent_Bp[row_X, column_X] - 1, type_X)

    def _replace_particles(self, look: _Look, row_X: np.ndarray, valid_B: np.ndarray) -> np.ndarray:
        """Replace particles of little weight among the rows ``row_X``; return which are valid."""
        graph_B, due_X = self.sample_B // self._particles, np.zeros(row_X.shape[0], dtype=bool)
        if self._weighs:
            due_X |= look.position_B[row_X] % INTERVAL == 0
        due_X |= np.isin(graph_B[row_X], graph_B[~valid_B])
        row_X = row_X[due_X]
        if row_X.shape[0] == 0:
            return valid_B
        graphs, index_X = self.rounds.graphs, torch.from_numpy(row_X).to(self.device)
        log_weight_X = graphs.log_weight_B[index_X].double().cpu().numpy()
        source_X = resampled_rows(
            self.sample_B[row_X],
            np.where(valid_B[row_X], log_weight_X, -np.inf),
            self._particles,
            self.seed_B[: -1 : self._particles],
            look.position_B[row_X],
        )
        graphs.log_weight_B[index_X] = 0.0
        changed_X = np.flatnonzero(source_X != np.arange(row_X.shape[0]))
        target, source = row_X[changed_X], row_X[source_X[changed_X]]
        if target.shape[0]:
            both_2X = torch.from_numpy(np.stack([target, source])).to(self.device)
            self.rounds.copy_rows(both_2X[0], both_2X[1])
        row_B = np.arange(valid_B.shape[0])
        row_B[target] = source
        if self.check is not None:
            self.check.select(torch.from_numpy(row_B))
        return valid_B[row_B]

    # Graphs that end, and others that begin.

    def _take_finished(self, look: _Look) -> None:
        ended_B = (look.idle_B & (self.sample_B >= 0)).reshape(-1, self._particles).all(axis=1)
        if not ended_B.any():
            return
        row_X = np.flatnonzero(ended_B.repeat(self._particles))
        self._put_out(row_X, look)
        self.sample_B[row_X] = -1
        self._start(row_X)

    def _start(self, row_X: Int[np.ndarray, " X"]) -> None:
        sample_X = np.arange(self._next_sample, len(self.request.seeds))[: row_X.shape[0]]
        row_X = row_X[: sample_X.shape[0]]
        if row_X.shape[0] == 0:
            return
        self._next_sample += row_X.shape[0]
        self.sample_B[row_X] = sample_X
        seed_X = self.seed_B[sample_X].astype(np.int64)
        index_X, samples_X, seeds_X = (
            torch.from_numpy(values).to(self.device) for values in (row_X, sample_X, seed_X)
        )
        start_A = self.task.modules.tokens.start_A
        self.rounds.graphs.start(index_X, samples_X, seeds_X, start_A)

    def _put_out(self, row_X: Int[np.ndarray, " X"], look: _Look) -> None:
        graphs, index_X = self.rounds.graphs, torch.from_numpy(row_X).to(self.device)
        sample_X = torch.from_numpy(self.sample_B[row_X])
        self.output.truncate(self.sample_B[row_X][look.truncated_B[row_X]])
        nodes_X, edges_X = (
            torch.from_numpy(values[row_X]) for values in (look.position_B, look.edges_B)
        )
        nodes, edges = int(nodes_X.max()), int(edges_X.max())
        is_node_XN = torch.arange(nodes) < nodes_X[:, None]
        self.output.add_nodes(
            torch.repeat_interleave(sample_X, nodes_X),
            graphs.x_BTA[index_X, 1 : nodes + 1].cpu()[is_node_XN],
            graphs.node_BTF[index_X, 1 : nodes + 1, Node.LAYER].cpu()[is_node_XN],
        )
        is_edge_XE = torch.arange(edges) < edges_X[:, None]
        self.output.add_edges(
            torch.repeat_interleave(sample_X, edges_X),
            *(
                values_BE[index_X, :edges].cpu()[is_edge_XE]
                for values_BE in (graphs.parent_BE, graphs.child_BE, graphs.type_BE)
            ),
        )

    def _make_room(self, look: _Look) -> None:
        extent, particles = self.rounds.extent, self._particles
        wanted = extent
        # Rows that were idle have no graph, a new one, or one that does not grow.
        position, edges = (
            int(value_B[~look.idle_B].max(initial=0)) for value_B in (look.position_B, look.edges_B)
        )
        if position + _ROUNDS_PER_LOOK >= extent.tokens:
            wanted = replace(wanted, tokens=2 * extent.tokens)
        if edges + _ROUNDS_PER_LOOK * self.task.max_parents > extent.edges:
            wanted = replace(wanted, edges=2 * extent.edges)
        row_B = np.arange(extent.rows)
        drawn_B = (self.sample_B >= 0).reshape(-1, particles).any(axis=1).repeat(particles)
        fewer = _FEWER_RECORDED_ROWS if self._recorded else _FEWER_ROWS
        if 0 < drawn_B.sum() <= fewer * extent.rows:
            row_B = np.flatnonzero(drawn_B)
            wanted = replace(wanted, rows=row_B.shape[0])
        if wanted != extent:
            self._move(row_B, wanted)

    def _move(self, row_B: Int[np.ndarray, " B"], extent: Extent) -> None:
        self._again = None
        self.rounds = self.rounds.moved(torch.from_numpy(row_B).to(self.device), extent)
        self.sample_B = self.sample_B[row_B]
        if self.check is not None:
            self.check.select(torch.from_numpy(row_B))
