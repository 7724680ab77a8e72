"""Settings of a capture, and what is refused."""

import pytest

from layerdag.errors import ConfigError, UsageError
from layerdag.workloads.capture import CapturePlan, CaptureStep
from layerdag.workloads.capture._settings import Settings


def test_ranks_are_the_product_of_the_degrees() -> None:
    plan = CapturePlan(data=2, fsdp=3, tensor=4)
    assert plan.ranks == 24
    assert list(plan.degrees.items()) == [("data", 2), ("fsdp", 3), ("tensor", 4)]
    assert CapturePlan().ranks == 1


def test_keywords_reach_the_plan_or_the_step() -> None:
    found = Settings.of({"tensor": 2, "sequence": 16, "phase": "inference"})
    assert found.plan == CapturePlan(tensor=2)
    assert found.step == CaptureStep(sequence=16, phase="inference")
    assert (found.step.training, CaptureStep().training) == (False, True)
    assert Settings.of({}) == Settings()


def test_an_unknown_keyword_is_refused_with_the_nearest_and_all_known() -> None:
    with pytest.raises(UsageError, match=r"'optimiser'.*Did you mean 'optimizer'.*Known: .*tensor"):
        Settings.of({"optimiser": "sgd"})


@pytest.mark.parametrize("name", ["data", "fsdp", "tensor"])
@pytest.mark.parametrize("value", [0, -1, True])
def test_degrees_are_whole_numbers_of_at_least_1(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"plan: {name} is {value!r}; .* at least 1"):
        CapturePlan(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "least"), [("batch", -1, 0), ("layers", -2, 0), ("sequence", 0, 1)]
)
def test_sizes_of_a_step_are_whole_numbers(name: str, value: object, least: int) -> None:
    with pytest.raises(ConfigError, match=f"step: {name} is {value!r}; .* at least {least}"):
        CaptureStep(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "nearest"),
    [
        ("phase", "inferenc", "inference"),
        ("precision", "bf61", "bf16"),
        ("optimizer", "adam", "adamw"),
    ],
)
def test_unknown_words_are_refused_with_the_nearest(name: str, value: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"step: {name} is '{value}'.*Did you mean '{nearest}'"):
        CaptureStep(**{name: value})
    assert getattr(CaptureStep(**{name: nearest}), name) == nearest
