"""Which drawn samples may be published."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from traced_jobs import invented, write_jobs

from layerdag.api.publication import ReleaseSettings
from layerdag.api.publication._split import dataset_of
from layerdag.api.publication.drawing import KEPT, Sieve, keys_of, written_graph
from layerdag.api.publication.drawing._batches import read_batch, write_batch
from layerdag.api.publication.reading import FoundJobs, read_jobs
from layerdag.datasets import GraphDataset
from layerdag.sampling import GeneratedGraph, GenerationSettings

Real = tuple[FoundJobs, GraphDataset]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    folder = tmp_path_factory.mktemp("sieve")
    jobs = read_jobs(ReleaseSettings(write_jobs(folder / "traces", 16), folder / "out"))
    return jobs, dataset_of(jobs, 0)


def drawn(real: Real, num: int) -> list[GeneratedGraph]:
    return list(invented(None, real[1].schema, GenerationSettings(num=num)))


def copy_of(real: Real, at: int = 0) -> GeneratedGraph:
    return GeneratedGraph("copy", 5, real[1].graphs["train"][at], False, real[1].schema)


def test_new_graphs_are_kept_and_copies_are_not(real: Real) -> None:
    samples = [*drawn(real, 4), copy_of(real)]
    words = [word for _, word in Sieve.of(*real).sifted(samples)]
    assert words[-1] == "copy of a real graph"
    assert words.count(KEPT) >= 2


def test_a_copy_of_a_held_out_graph_is_rejected_as_well(real: Real) -> None:
    held = GeneratedGraph("copy", 5, real[1].graphs["test"][0], False, real[1].schema)
    [(_, word)] = Sieve.of(*real).sifted([held])
    assert word == "copy of a real graph"


def test_repetitions_and_torn_graphs_are_rejected(real: Real) -> None:
    sieve = Sieve.of(*real)
    kept = [sample for sample, word in sieve.sifted(drawn(real, 8)) if word == KEPT]
    again = replace(kept[0], name="again")
    cut = replace(drawn(real, 9)[-1], truncated=True)
    words = [word for _, word in sieve.sifted([again, cut])]
    assert words == ["repeats an earlier sample", "cut off at the largest size"]


def test_numbers_of_a_single_run_do_not_survive(real: Real) -> None:
    sieve = Sieve.of(*real)
    made = next(s for s, word in sieve.sifted(drawn(real, 8)) if word == KEPT)
    own = keys_of(written_graph(made))
    sieve = Sieve.of(*real)
    sieve.unique = np.unique(own[own != 0])[:3]
    [(changed, word)] = sieve.sifted([made])
    assert word == KEPT
    assert not np.isin(keys_of(written_graph(changed)), sieve.unique).any()
    assert sieve.renumbered > 0
    assert torch.equal(changed.dag.x_NA[:, :8], made.dag.x_NA[:, :8])  # words stay


def test_numbers_that_were_assigned_are_replaced_as_well(real: Real) -> None:
    sieve = Sieve.of(*real)
    made = next(s for s, word in sieve.sifted(drawn(real, 8)) if word == KEPT)
    assigned = made.with_numbers(dict(made.graph.numbers))
    own = keys_of(written_graph(assigned))
    sieve = Sieve.of(*real)
    sieve.unique = np.unique(own[own != 0])[:3]
    [(changed, word)] = sieve.sifted([assigned])
    assert word == KEPT
    assert not np.isin(keys_of(written_graph(changed)), sieve.unique).any()
    assert 0 < sieve.renumbered <= changed.dag.num_nodes


def test_batches_come_back_as_they_were_and_damage_is_noticed(real: Real, tmp_path: Path) -> None:
    batch, schema = drawn(real, 3), real[1].schema
    batch[0] = replace(batch[0], numbers={"flops": np.full(batch[0].dag.num_nodes, 7.0)})
    write_batch(tmp_path / "0.npz", batch)
    again = read_batch(tmp_path / "0.npz", schema)
    for one, other in zip(batch, again, strict=True):
        assert one.seed == other.seed
        assert one.dag.conditions == other.dag.conditions
        np.testing.assert_array_equal(one.graph.numbers["flops"], other.graph.numbers["flops"])
        assert torch.equal(one.dag.x_NA, other.dag.x_NA)
        assert torch.equal(one.dag.u_NA, other.dag.u_NA)
        assert torch.equal(one.dag.edge_index_2E, other.dag.edge_index_2E)
    data = (tmp_path / "0.npz").read_bytes()
    (tmp_path / "0.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises((ValueError, KeyError, OSError)):
        read_batch(tmp_path / "0.npz", schema)
