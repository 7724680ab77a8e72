"""Points of a space: possible, different, the same for a seed."""

import itertools

import pytest
from small_spaces import small_space

from layerdag.errors import ConfigError, UsageError
from layerdag.workloads.corpus import draw_points
from layerdag.workloads.corpus._points import scaled
from layerdag.workloads.symbolic import model
from layerdag.workloads.symbolic.costs import rank_memory


def test_points_are_different_and_those_of_the_seed() -> None:
    space = small_space()
    first = [*itertools.islice(draw_points(space, 0), 30)]
    assert first == [*itertools.islice(draw_points(space, 0), 30)]
    assert len(set(first)) == 30
    assert first != [*itertools.islice(draw_points(space, 1), 30)]


def test_conditions_say_what_a_point_is() -> None:
    for point in itertools.islice(draw_points(small_space(), 0), 40):
        asked, plan = point.conditions, point.job.plan
        ranks = int(str(asked["tensor"])) * int(str(asked["pipeline"])) * int(str(asked["data"]))
        assert ranks == plan.ranks
        assert int(str(asked["micro_batches"])) * plan.pipeline <= 4
        assert asked["batch"] == point.job.step.batch
        assert asked["layers"] == point.job.shape.layers
        assert asked["hidden"] == point.job.shape.hidden
        assert asked["zero"] == "0" or plan.data > 1
        assert asked["sequence_parallel"] == "no" or plan.tensor > 1


def test_points_fit_into_the_memory_of_the_machine() -> None:
    small = small_space(machine={"memory_gib": 0.5})
    for point in itertools.islice(draw_points(small, 0), 10):
        stages = range(point.job.plan.pipeline)
        assert max(rank_memory(point.job.costs, s).total for s in stages) <= 0.5 * 2**30


def test_a_space_with_too_few_points_says_how_many_there_are() -> None:
    tiny = small_space(
        layers=[4], hidden=[512], sequence=[256], micro_batch_size=[1], world_size=[1],
        models={"gpt3": "gpt3-6.7b"}, recompute=["none"], rounds=[1],
    )  # fmt: skip
    with pytest.raises(UsageError, match="Only 1 different points"):
        list(draw_points(tiny, 0))


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(UsageError, match="gpt9"):
        next(draw_points(small_space(models={"gpt3": "gpt9"}), 0))


def test_a_scaled_model_keeps_its_proportions() -> None:
    shape = scaled(model("llama3-8b"), 40, 8192, 4096)
    assert (shape.layers, shape.hidden, shape.heads, shape.key_heads) == (40, 8192, 64, 16)
    assert shape.feed_forward * 4096 == model("llama3-8b").feed_forward * 8192


@pytest.mark.parametrize(("name", "hidden", "told"), [
    ("llama3-8b", 4096 + 64, "no whole number of heads"),
    ("qwen2.5-72b", 1024 + 128, "no whole number of heads"),
    ("gpt3-6.7b", 4096, "2048 positions"),
])  # fmt: skip
def test_a_model_that_cannot_be_scaled_is_refused(name: str, hidden: int, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        scaled(model(name), 8, hidden, 4096)
