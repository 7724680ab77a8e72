"""Jobs of several ranks exchange something."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from costed_jobs import costed_job, costed_jobs

from layerdag.datasets.schema import GraphSchema
from layerdag.sampling import GeneratedGraph, GenerationSettings, _sampling
from layerdag.sampling._generated import knows_communication

SCHEMA = GraphSchema.fit("trace", costed_jobs([8, 16] * 10), num_bins=2)
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


@pytest.mark.parametrize(
    ("ranks", "communicates", "lacks"),
    [("2", True, False), ("2", False, True), ("1", False, False), ("4", False, True)],
)
def test_only_several_ranks_that_exchange_nothing_lack_communication(
    ranks: str, communicates: bool, lacks: bool
) -> None:
    assert sampled(0, communicates=communicates, ranks=ranks).lacks_communication is lacks


def test_a_schema_knows_whether_training_jobs_communicated() -> None:
    assert knows_communication(SCHEMA)
    assert not knows_communication(QUIET)


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

    monkeypatch.setattr(_sampling._Drawing, "_graphs", graphs)
    drawing = _sampling._Drawing(None, schema, GenerationSettings(seed=7, redraws=0), None, None)
    return drawing.graphs(range(4), [{"world_size": "2"}] * 4), asked


def test_a_silent_job_is_drawn_again_and_keeps_its_name_and_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, asked = drawn(monkeypatch, SCHEMA, silent_draws=2)
    assert [graph.name for graph in found] == [f"sample-{i:05d}" for i in range(4)]
    assert [graph.seed for graph in found] == [7, 8, 9, 10]
    assert not any(graph.lacks_communication for graph in found)
    assert asked[:4] == [7, 8, 9, 10]
    assert len(set(asked)) == len(asked) == 6


def test_a_job_that_stays_silent_is_given_up_after_a_few_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, asked = drawn(monkeypatch, SCHEMA, silent_draws=100)
    assert found[1].lacks_communication
    assert len(asked) == 4 + _sampling._REDRAWS_OF_FAULTS


def test_nothing_is_drawn_again_where_no_training_job_communicated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, asked = drawn(monkeypatch, QUIET, silent_draws=100)
    assert len(asked) == 4


def test_a_job_that_contradicts_itself_is_drawn_again_and_the_best_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two faults at first, then one, then silence."""
    plain = costed_job(8)
    groupless = {**plain.categories, "group": ["none"] * plain.num_nodes}
    jobs = [
        replace(plain, categories={**groupless, "op": ["aten::mm"] * plain.num_nodes}),
        replace(plain, categories=groupless),
    ]
    draws = iter([*jobs, *[None] * _sampling._REDRAWS_OF_FAULTS])

    def graphs(
        self: object, numbers: Sequence[int], seeds: Sequence[int], rows: Sequence[object]
    ) -> list[GeneratedGraph]:
        job = next(draws)
        if job is None:
            return [sampled(seeds[0], communicates=False)]
        dag = SCHEMA.encode(job).with_conditions({"world_size": "2"})
        return [GeneratedGraph("sample-00000", seeds[0], dag, False, SCHEMA)]

    monkeypatch.setattr(_sampling._Drawing, "_graphs", graphs)
    drawing = _sampling._Drawing(None, SCHEMA, GenerationSettings(seed=7, redraws=0), None, None)
    (kept,) = drawing.graphs([0], [{"world_size": "2"}])
    assert kept.seed == 7
    assert kept.decoded.categories["op"] == list(plain.categories["op"])
    assert set(kept.decoded.categories["group"]) == {"none"}
