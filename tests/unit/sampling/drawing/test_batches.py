"""Which graphs are drawn side by side."""

import pytest
import torch
from sample_parts import TEN
from tiny_checkpoints import chain_checkpoint, costed_checkpoint, job_checkpoint

from layerdag.sampling import (
    GenerationSettings,
    checkpoint_schema,
    generate,
    generate_together,
)
from layerdag.sampling.drawing import _batches as batches
from layerdag.sampling.drawing._batches import batches_of_like_size


def settings(**more: object) -> GenerationSettings:
    return GenerationSettings(**{"guidance": 1.0, "best_of": 1, **more})


@pytest.fixture
def room_for_a_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST_POSITIONS", 1000)


def rows(*sizes: float) -> list[dict[str, float]]:
    return [{"num_nodes": size} for size in sizes]


@pytest.mark.usefixtures("room_for_a_thousand")
def test_graphs_of_like_size_are_drawn_together_as_many_as_fit() -> None:
    found = batches_of_like_size(rows(400, 10, 500, 20, 900, 2000, 30), settings())
    assert found == [[1, 3, 6], [0, 2], [4], [5]]


@pytest.mark.usefixtures("room_for_a_thousand")
@pytest.mark.parametrize(
    ("more", "length"),
    [({}, 10), ({"best_of": 2}, 5), ({"guidance": 2.0}, 5), ({"best_of": 99}, 1)],
)
def test_candidates_and_guidance_take_rows(more: dict[str, object], length: int) -> None:
    found = batches_of_like_size(rows(*[100.0] * 20), settings(**more))
    assert {len(batch) for batch in found} == {length}


def test_a_batch_size_that_is_given_counts() -> None:
    found = batches_of_like_size(rows(9, 8, 7, 6, 5), settings(batch_size=2))
    assert found == [[4, 3], [2, 1], [0]]


@pytest.mark.usefixtures("room_for_a_thousand")
@pytest.mark.parametrize("row", [{}, {"num_nodes": float("nan")}, {"num_nodes": "many"}])
def test_graphs_of_unknown_size_are_drawn_a_few_at_a_time(row: dict[str, object]) -> None:
    assert {len(b) for b in batches_of_like_size([row] * 9, settings())} == {3}
    limited = settings(max_nodes=10)
    assert len(batches_of_like_size([row] * 9, limited)) == 1


def test_without_rows_there_is_no_batch() -> None:
    assert batches_of_like_size([], settings()) == []


@pytest.mark.parametrize("make", [chain_checkpoint, job_checkpoint, costed_checkpoint])
@pytest.mark.parametrize("positions", [1, 40, 100_000])
def test_graphs_and_their_order_are_those_of_small_batches(
    tmp_path, make, positions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MOST_POSITIONS", positions)
    checkpoint = make(tmp_path)
    schema = checkpoint_schema(checkpoint)
    wanted = GenerationSettings(num=10, seed=7, best_of=2, max_nodes=TEN.max_nodes)
    found = list(generate_together(checkpoint.model, schema, wanted))
    for one, other in zip(found, generate(checkpoint.model, schema, wanted), strict=True):
        assert (one.name, one.seed, one.truncated) == (other.name, other.seed, other.truncated)
        assert torch.equal(one.dag.x_NA, other.dag.x_NA)
        assert torch.equal(one.dag.u_NA, other.dag.u_NA)
        assert torch.equal(one.dag.edge_index_2E, other.dag.edge_index_2E)
        assert one.dag.conditions == other.dag.conditions
