import pytest

from layerdag.api.auditing.shadows import ShadowSettings
from layerdag.errors import UsageError


def test_the_budget_is_shared_and_steps_have_none() -> None:
    assert ShadowSettings(count=20).seconds == 30.0
    assert ShadowSettings(count=20, budget=60).seconds == 3.0
    assert ShadowSettings(steps=5).seconds is None


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"count": 3}, "at least 4 shadow models, found 3"),
        ({"steps": 3, "budget": 5.0}, "leave one of them out"),
        ({"steps": 0}, "at least 1 step"),
        ({"budget": 0.0}, "above 0 seconds"),
        ({"seed": -1}, "must not be negative"),
    ],
)
def test_what_is_out_of_bounds_is_refused(settings: dict[str, float], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        ShadowSettings(**settings)
