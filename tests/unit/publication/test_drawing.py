"""Batches of drawn samples on disk: they come back, whole or not at all."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from costed_jobs import costed_job, costed_jobs, schema_of_jobs
from raw_graphs import chain
from traced_jobs import invented, write_jobs

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.discovery import FoundJobs
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.publication.cross_fitting import dataset_of
from layerdag.publication.drawing import (
    KEPT,
    ReleaseFilter,
    Renumbering,
    keys_of,
    read_batch,
    write_batch,
)
from layerdag.publication.settings import ReleaseSettings, read_jobs
from layerdag.sampling.generated import GeneratedGraph, GeneratedJob
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema

DATA = GraphDataset.build(
    "toy", "flow", {"train": [chain(f"g{i}", "abab"[: 2 + i], label=float(i)) for i in range(3)]}
)


def samples() -> list[GeneratedGraph]:
    return [
        GeneratedGraph(f"drawn-{40 + i}", 40 + i, dag, i == 1, DATA.schema)
        for i, dag in enumerate(DATA.graphs["train"])
    ]


def back(path: Path, batch: Sequence[GeneratedGraph]) -> list[GeneratedGraph]:
    write_batch(path, batch)
    return read_batch(path, DATA.schema)


def test_samples_come_back_with_seed_name_conditions_and_codes(tmp_path):
    for one, again in zip(samples(), back(tmp_path / "b.npz", samples()), strict=True):
        assert (again.seed, again.name, again.truncated) == (one.seed, one.name, one.truncated)
        assert again.dag.conditions == one.dag.conditions
        assert torch.equal(again.dag.x_NA, one.dag.x_NA)
        assert torch.equal(again.dag.edge_type_E, one.dag.edge_type_E)
        assert torch.equal(again.dag.layer_N, one.dag.layer_N)
        assert again.schema is DATA.schema


def test_names_are_those_of_the_seeds_whatever_they_were(tmp_path):
    named = [replace(sample, name="another") for sample in samples()]
    assert [s.name for s in back(tmp_path / "b.npz", named)] == ["drawn-40", "drawn-41", "drawn-42"]


def test_an_empty_batch_is_a_batch(tmp_path):
    assert back(tmp_path / "b.npz", []) == []


def test_a_batch_takes_the_place_of_an_older_one_and_leaves_no_draft(tmp_path):
    back(tmp_path / "b.npz", samples())
    assert len(back(tmp_path / "b.npz", samples()[:1])) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["b.npz"]


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.99])
def test_a_file_that_was_cut_off_is_noticed(tmp_path, keep):
    path = tmp_path / "b.npz"
    write_batch(path, samples())
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if keep < 1 else int(keep)])
    with pytest.raises((ValueError, KeyError, OSError, EOFError)):
        read_batch(path, DATA.schema)


@pytest.mark.parametrize("missing", ["notes", "x0", "e2"])
def test_an_array_that_is_missing_is_noticed(tmp_path, missing):
    path = tmp_path / "b.npz"
    write_batch(path, samples())
    with np.load(path) as held:
        arrays = {name: held[name] for name in held.files if name != missing}
    np.savez_compressed(path, **arrays)
    with pytest.raises(KeyError, match=missing):
        read_batch(path, DATA.schema)


def test_objects_are_never_unpickled(tmp_path):
    path = tmp_path / "b.npz"
    np.savez(path, notes=np.array([{"seed": 1}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        read_batch(path, DATA.schema)


JOBS = costed_jobs([8, 16, 32] * 20 + [48, 56])
SCHEMA = schema_of_jobs(JOBS, 4)


def sampled(width: int, seed: int = 3) -> GeneratedGraph:
    dag = SCHEMA.encode(costed_job(width, label=1e-6))
    return GeneratedGraph("drawn", seed, dag, False, SCHEMA)


def private(*graphs: AttributedGraph, nodes: slice = slice(None)) -> Renumbering:
    """Return what avoids all numbers of some nodes of these graphs."""
    keys = np.concatenate([keys_of(graph)[nodes] for graph in graphs])
    return Renumbering(SCHEMA, np.unique(keys[keys != 0]))


def test_structure_and_names_stay():
    sample = sampled(16)
    changed = private(sample.graph).again(sample, 1)
    assert changed.graph.categories == sample.graph.categories
    assert torch.equal(changed.dag.edge_index_2E, sample.dag.edge_index_2E)
    assert changed.seed == sample.seed


def test_the_sample_and_the_trial_alone_decide():
    sample = sampled(48)
    renumbering = private(sample.graph)
    first, again = (renumbering.again(sample, 1) for _ in range(2))
    for name, value_N in first.graph.numbers.items():
        np.testing.assert_array_equal(value_N, again.graph.numbers[name])


def test_codes_are_those_of_the_new_numbers():
    sample = sampled(48)
    changed = private(sample.graph).again(sample, 1)
    assert torch.equal(SCHEMA.codes(changed.decoded).x_NA, changed.dag.x_NA)


@pytest.mark.parametrize("trial", range(6))
def test_numbers_of_a_single_run_are_drawn_anew_in_their_bins_and_then_beside(trial):
    rng = np.random.default_rng(0)
    graphs = [
        AttributedGraph(
            name=f"flow-{i}",
            categories={"op": ["a", "b", "c"]},
            numbers={"value": rng.uniform(1, 1000, 3)},
            edge_index_2E=np.array([[0, 1], [1, 2]]),
            edge_type_E=np.zeros(2, dtype=np.int64),
        )
        for i in range(20)
    ]
    schema = GraphSchema.fit("flow", graphs, num_bins=4)
    dag: DAG = schema.encode(graphs[0])
    sample = GeneratedGraph("drawn", 1, dag, False, schema)
    keys = keys_of(sample.graph)
    renumbering = Renumbering(schema, np.unique(keys[:1]))
    changed = renumbering.again(sample, trial)
    assert not renumbering.hits(changed.graph).any()
    assert torch.equal(changed.dag.x_NA[1:], dag.x_NA[1:])
    same_bin = torch.equal(changed.dag.x_NA, dag.x_NA)
    assert same_bin is (trial < 2)


Real = tuple[FoundJobs, GraphDataset]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    folder = tmp_path_factory.mktemp("sieve")
    jobs = read_jobs(ReleaseSettings(write_jobs(folder / "traces", 16), folder / "out"))
    return jobs, dataset_of(jobs, 0)


def drawn(real: Real, num: int) -> list[GeneratedGraph]:
    return list(invented(None, real[1].schema, GenerationSettings(num=num)))


def copy_of(real: Real, at: int = 0) -> GeneratedGraph:
    return GeneratedJob("copy", 5, real[1].graphs["train"][at], False, real[1].schema)


def test_new_graphs_are_kept_and_copies_are_not(real):
    held = GeneratedJob("held", 5, real[1].graphs["test"][0], False, real[1].schema)
    samples = [*drawn(real, 4), copy_of(real), held]
    words = [word for _, word in ReleaseFilter.from_jobs(*real).filter(samples)]
    assert words[-2:] == ["copy of a real graph"] * 2
    assert words.count(KEPT) >= 2


def test_repetitions_and_torn_graphs_are_rejected(real):
    sieve = ReleaseFilter.from_jobs(*real)
    kept = [sample for sample, word in sieve.filter(drawn(real, 8)) if word == KEPT]
    again = replace(kept[0], name="again")
    cut = replace(drawn(real, 9)[-1], truncated=True)
    words = [word for _, word in sieve.filter([again, cut])]
    assert words == ["repeats an earlier sample", "cut off at the largest size"]


def test_numbers_of_a_single_run_do_not_survive(real):
    sieve = ReleaseFilter.from_jobs(*real)
    made = next(s for s, word in sieve.filter(drawn(real, 8)) if word == KEPT)
    own = keys_of(made.written_graph())
    sieve = ReleaseFilter.from_jobs(*real)
    sieve.unique = np.unique(own[own != 0])[:3]
    [(changed, word)] = sieve.filter([made])
    assert word == KEPT
    assert not np.isin(keys_of(changed.written_graph()), sieve.unique).any()
    assert 0 < sieve.renumbered <= changed.dag.num_nodes
    assert torch.equal(changed.dag.x_NA[:, :8], made.dag.x_NA[:, :8])  # words stay
