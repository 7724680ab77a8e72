"""Jobs of several ranks exchange something."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from costed_jobs import costed_job, costed_jobs, schema_of_jobs
from random_jobs import random_job

from layerdag.codec.folding import COMMUNICATION
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import DataError, UsageError
from layerdag.runtime.reading import Limits
from layerdag.sampling import generation
from layerdag.sampling.generated import (
    GeneratedGraph,
    as_workload,
    requested_ranks,
)
from layerdag.sampling.generation import draw_policy, sample
from layerdag.sampling.job_draws import JobDraws, has_communication
from layerdag.sampling.output_size import expected_output_size
from layerdag.sampling.sample_files import SampleFiles
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema

STATISTICS = GraphStatistics(
    graphs=2,
    attributes=((10, 10),),
    edge_types=(5,),
    in_degrees=(((0, 10),), ((0, 10),)),
    out_degrees=(((0, 10),), ((0, 10),)),
    layer_sizes=((1, 20),),
    layer_counts=((10, 2),),
)


def volume(rows, num, *, ranks=None, max_nodes=1000, file_format="et"):
    return expected_output_size(
        rows, STATISTICS, num=num, ranks=ranks, max_nodes=max_nodes, file_format=file_format
    )


def test_jobs_are_a_file_a_rank():
    found = volume([{"world_size": "2", "num_nodes": 100.0}, {"world_size": 4.0}], 20)
    assert (found.graphs, found.least_ranks, found.most_ranks) == (20, 2, 4)
    assert found.files == 10 * (2 + 4) + 1
    # The second has the mean of the training graphs, 10 nodes.
    assert found.bytes == 10 * (200 + 40) * 135
    assert found.describe() == "20 jobs of 2 to 4 ranks: about 61 files and 324.0 kB"


def test_ranks_and_nodes_that_were_asked_for_count():
    found = volume([{"world_size": "2", "num_nodes": 1e9}], 1, ranks=8, max_nodes=50)
    assert (found.most_ranks, found.bytes) == (8, 8 * 50 * 135)


def test_flow_graphs_are_one_file_each_and_the_manifest():
    found = volume([{"num_nodes": 10.0}], 7, file_format="graphml")
    assert (found.files, found.bytes) == (8, 7 * 10 * 550)
    assert found.describe().startswith("7 graphs: about 8 files")


@pytest.mark.parametrize("value", ["x", "1" * 5000, float("nan"), float("inf"), -3.0, 0.0, "1e400"])
def test_a_world_size_that_is_no_number_of_ranks_is_one_sentence(value):
    with pytest.raises(DataError, match="no number of ranks"):
        requested_ranks({"world_size": value})


def test_numbers_of_nodes_that_are_none_count_as_the_mean():
    assert volume([{"num_nodes": "many"}], 1).bytes == 10 * 135
    assert volume([{"num_nodes": float("inf")}], 1).bytes == 10 * 135


def test_a_job_of_forty_million_ranks_is_refused_before_it_is_unfolded():
    job = random_job(0, 2, layers=4)
    with pytest.raises(UsageError, match=r"40,000,000 ranks are more than max_ranks, 4,096"):
        as_workload(job, 40_000_000)
    with pytest.raises(UsageError, match=r"max_ranks, 8"):
        as_workload(job, 10, Limits(max_ranks=8))


def test_the_estimate_of_a_sample_is_near_its_files(tmp_path):
    for file_format in ("et", "graphml", "json"):
        job = random_job(1, 3, layers=8)
        unfolded = as_workload(job, 6, Limits()) if file_format == "et" else None
        files = SampleFiles(job, file_format, unfolded)
        folder = tmp_path / file_format
        folder.mkdir()
        files.write(folder)
        written = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        assert written / 3 < files.num_bytes < written * 3


SCHEMA = schema_of_jobs(costed_jobs([8, 16] * 10), 2)
QUIET = GraphSchema.fit(
    "trace",
    [
        replace(job, categories={**job.categories, "group": ["none"] * job.num_nodes})
        for job in costed_jobs([8, 16] * 10)
    ],
    num_bins=2,
)


def sampled(
    seed: int, *, communicates: bool, ranks: str = "2", schema: GraphSchema = SCHEMA
) -> GeneratedGraph:
    """Return a job of so many ranks, whose last node is an all-reduce or a product."""
    job = costed_job(8)
    if not communicates:
        quiet = {"type": "COMP", "collective": "none", "group": "none", "op": "aten::mm"}
        columns = {k: [*c[:-1], quiet.get(k, c[-1])] for k, c in job.categories.items()}
        job = replace(job, categories=columns)
    dag = schema.encode(job).with_conditions({"world_size": ranks})
    return GeneratedGraph(f"sample-{seed:05d}", seed, dag, False, schema)


def exchanges(sample: GeneratedGraph) -> bool:
    return not COMMUNICATION.isdisjoint(sample.graph.categories["type"])


def test_a_schema_knows_whether_training_jobs_communicated():
    assert has_communication(SCHEMA)
    assert not has_communication(QUIET)


def drawn(
    monkeypatch: pytest.MonkeyPatch, schema: GraphSchema, silent_draws: int
) -> tuple[list[GeneratedGraph], list[int]]:
    """Return four graphs of which the second is silent in its first draws, and all seeds."""
    asked: list[int] = []

    def graphs(
        self: object, numbers: Sequence[int], seeds: Sequence[int], rows: Sequence[object]
    ) -> list[GeneratedGraph]:
        asked.extend(seeds)
        first = len(asked) - len(seeds)
        return [
            replace(
                sampled(
                    seed,
                    communicates=schema is SCHEMA and (number != 1 or first >= 3 + silent_draws),
                    schema=schema,
                ),
                name=f"sample-{number:05d}",
            )
            for number, seed in zip(numbers, seeds, strict=True)
        ]

    monkeypatch.setattr(generation.Sampler, "drawn_once", graphs)
    settings = GenerationSettings(seed=7, redraws=0)
    drawing = generation.Sampler(None, schema, settings, draw_policy(schema, settings))
    return drawing.graphs(range(4), [{"world_size": "2"}] * 4), asked


def test_a_silent_job_is_drawn_again_and_keeps_its_name_and_seed(monkeypatch):
    found, asked = drawn(monkeypatch, SCHEMA, silent_draws=2)
    assert [graph.name for graph in found] == [f"sample-{i:05d}" for i in range(4)]
    assert [graph.seed for graph in found] == [7, 8, 9, 10]
    assert all(map(exchanges, found))
    assert asked[:4] == [7, 8, 9, 10]
    assert len(set(asked)) == len(asked) == 6


def test_a_job_that_stays_silent_is_given_up_after_a_few_draws(monkeypatch):
    found, asked = drawn(monkeypatch, SCHEMA, silent_draws=100)
    assert not exchanges(found[1])
    assert len(asked) == 4 + JobDraws.max_retries


def test_nothing_is_drawn_again_where_no_training_job_communicated(monkeypatch):
    _, asked = drawn(monkeypatch, QUIET, silent_draws=100)
    assert len(asked) == 4


def test_a_job_that_contradicts_itself_is_drawn_again_and_the_best_is_kept(monkeypatch):
    """Two faults at first, then one, then silence."""
    plain = costed_job(8)
    groupless = {**plain.categories, "group": ["none"] * plain.num_nodes}
    jobs = [
        replace(plain, categories={**groupless, "op": ["aten::mm"] * plain.num_nodes}),
        replace(plain, categories=groupless),
    ]
    draws = iter([*jobs, *[None] * JobDraws.max_retries])

    def graphs(
        self: object, numbers: Sequence[int], seeds: Sequence[int], rows: Sequence[object]
    ) -> list[GeneratedGraph]:
        job = next(draws)
        if job is None:
            return [sampled(seeds[0], communicates=False)]
        dag = SCHEMA.encode(job).with_conditions({"world_size": "2"})
        return [GeneratedGraph("sample-00000", seeds[0], dag, False, SCHEMA)]

    monkeypatch.setattr(generation.Sampler, "drawn_once", graphs)
    settings = GenerationSettings(seed=7, redraws=0)
    drawing = generation.Sampler(None, SCHEMA, settings, draw_policy(SCHEMA, settings))
    (kept,) = drawing.graphs([0], [{"world_size": "2"}])
    assert kept.seed == 7
    assert kept.decoded.categories["op"] == list(plain.categories["op"])
    assert set(kept.decoded.categories["group"]) == {"none"}


def test_samples_come_into_memory_in_every_form(trace):
    first, second = sample(trace, num=2, seed=3, max_nodes=10)
    assert (first.name, first.seed, second.seed) == ("sample-00000", 3, 4)
    assert first.graph.num_nodes == first.dag.num_nodes
    assert first.graph is first.graph
    assert first.workload().num_ranks >= 1
    assert first.workload(ranks=4).num_ranks >= 4
    shown = repr(first)
    assert shown.startswith(f"GeneratedGraph('sample-00000', seed=3, {first.dag.num_nodes} nodes")
    assert "tensor" not in shown


def test_a_sample_depends_on_its_seed_alone_and_on_no_file(flow):
    (alone,) = sample(flow, num=1, seed=5, conditions={"label": 2.0}, max_nodes=8)
    many = sample(flow.path, num=3, seed=4, conditions={"label": 2.0}, batch_size=2, max_nodes=8)
    assert many[1].dag.x_NA.tolist() == alone.dag.x_NA.tolist()
    assert alone.dag.conditions["label"] == 2.0
    with pytest.raises(DataError):
        alone.workload()


def test_numbers_of_a_job_are_those_that_the_model_drew_with_its_seed_alone(costed):
    (alone,) = sample(costed, num=1, seed=5, max_nodes=20)
    many = sample(costed, num=2, seed=4, max_nodes=20)
    for name, value_N in alone.schema.decode(alone.dag).numbers.items():
        np.testing.assert_array_equal(value_N, alone.graph.numbers[name])
        np.testing.assert_array_equal(value_N, many[1].graph.numbers[name])
