"""Candidate parents and their codes, against loops over tokens and edges."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried
from random_graphs import random_dag
from small_models import SIZES, collated, small_dags

from layerdag.dag.dag import DAGBatch
from layerdag.models.fast.layout import (
    NEVER,
    AttentionBlocks,
    BatchLayout,
    Edges,
    ParentDecisionRows,
    log_code,
    offset_code,
    stub_code,
)
from layerdag.models.fast.targets import TrainingCandidates


def found_in(batch: DAGBatch, block: int, out_degree_T=None, dynamic=True):
    layout = BatchLayout.from_batch(batch)
    edges, blocks = Edges.from_batch(batch, layout), AttentionBlocks.from_layout(layout, block)
    out_degree_T = edges.out_degree_T if out_degree_T is None else out_degree_T
    return TrainingCandidates.from_graphs(layout, edges, out_degree_T, blocks, dynamic)


class SlowCandidates:
    """The candidates of each decision of a batch: (softmax, candidate, chosen, codes) of pairs."""

    def __init__(self, batch: DAGBatch, block: int, out_degree_T: torch.Tensor) -> None:
        self.layout = BatchLayout.from_batch(batch)
        self.edges = Edges.from_batch(batch, self.layout)
        self.out_degree_T = out_degree_T
        self.of_T = AttentionBlocks.from_layout(self.layout, block).of_T.tolist()
        self.window, self.inside, self.blocks, self.stubs = [], [], [], []
        self.block = block
        self.softmaxes = len(self.edges.parent_E)
        rows = ParentDecisionRows.from_edges(self.layout, self.edges)
        columns = (self.edges.parent_E, rows.child_Q, rows.low_Q, rows.high_Q, rows.reference_Q)
        for decision, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            self.decide(decision, *row)

    def decide(self, e: int, parent: int, child: int, low: int, high: int, reference: int) -> None:
        start = int(self.layout.start_B[self.layout.graph_T[child]])
        window = start + max((child - 1 - start) // self.block - 1, 0) * self.block
        self.stubs.append(self.codes(parent, child, reference)[0])
        for t in range(max(low, window), high):
            self.window.append((e, e, t, t == parent, self.codes(t, child, reference)))
        for z in dict.fromkeys(self.of_T[t] for t in range(low, min(high, window))):
            self.blocks.append((e, e, z, z == self.of_T[parent], self.block_code(z, child)))
        if parent < window:
            for t in range(low, high):
                if self.of_T[t] == self.of_T[parent]:
                    codes = self.codes(t, child, reference)
                    self.inside.append((e, self.softmaxes, t, t == parent, codes))
            self.softmaxes += 1

    def children(self, token: int, before: int) -> list[int]:
        edges = self.edges
        return edges.child_E[(edges.parent_E == token) & (edges.child_E < before)].tolist()

    def codes(self, token: int, child: int, reference: int) -> list[int]:
        children = self.children(token, child)
        layers = self.layout.layer_T[child] - self.layout.layer_T[token]
        gap = torch.tensor(child - max(children, default=child))
        offset = offset_code(torch.tensor(token - reference), torch.tensor(reference != NEVER))
        stub = stub_code(torch.tensor(len(children)), self.out_degree_T[token])
        return [int(code) for code in (stub, offset, log_code(gap), log_code(layers))]

    def block_code(self, block: int, child: int) -> int:
        tokens = [t for t, of in enumerate(self.of_T) if of == block]
        used = sum(len(self.children(t, child)) for t in tokens)
        return int(log_code((self.out_degree_T[tokens].sum() - used).clamp(min=0)))


@tried(25)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 5, 64]))
def test_candidates_are_those_found_one_by_one(seed, block):
    rng = np.random.default_rng(seed)
    layers = [rng.integers(1, 7, rng.integers(1, 7)).tolist() for _ in range(rng.integers(1, 4))]
    batch = collated([random_dag(rng, sizes, list(SIZES.attributes)) for sizes in layers])
    out_degree_T = torch.from_numpy(rng.integers(0, 5, batch.num_nodes + batch.num_graphs))
    found, stub_E = found_in(batch, block, out_degree_T)
    slow = SlowCandidates(batch, block, out_degree_T)
    pairs = [*slow.window, *slow.inside]
    assert found.tokens.decision_P.tolist() == [pair[0] for pair in pairs]
    assert found.tokens.candidate_P.tolist() == [pair[2] for pair in pairs]
    assert found.codes_P4.tolist() == [pair[4] for pair in pairs]
    assert found.blocks.decision_P.tolist() == [pair[0] for pair in slow.blocks]
    assert found.blocks.candidate_P.tolist() == [pair[2] for pair in slow.blocks]
    assert found.block_codes_P.tolist() == [pair[4] for pair in slow.blocks]
    pairs += slow.blocks
    assert found.softmax_P.tolist() == [pair[1] for pair in pairs]
    chosen = {pair[1]: number for number, pair in enumerate(pairs) if pair[3]}
    assert found.chosen_G.tolist() == [chosen[softmax] for softmax in range(slow.softmaxes)]
    assert found.padding_G.tolist() == [0.0] * slow.softmaxes
    assert stub_E.tolist() == slow.stubs


@pytest.mark.parametrize("block", [2, 64])
def test_without_parent_features_only_the_codes_of_tokens_differ(block):
    batch = collated(small_dags(4))
    (known, known_stub_E), (none, stub_E) = (
        found_in(batch, block, dynamic=dynamic) for dynamic in (True, False)
    )
    assert known.codes_P4.any()
    assert not none.codes_P4.any()
    assert none.codes_P4.shape == known.codes_P4.shape
    for name in ("softmax_P", "chosen_G", "block_codes_P"):
        assert torch.equal(getattr(none, name), getattr(known, name))
    assert torch.equal(stub_E, known_stub_E)


def test_graphs_without_edges_have_no_candidates():
    rng = np.random.default_rng(0)
    found, stub_E = found_in(collated([random_dag(rng, [3], list(SIZES.attributes))]), 2)
    assert found.codes_P4.shape == (0, 4)
    assert found.softmax_P.shape == found.chosen_G.shape == stub_E.shape == (0,)
