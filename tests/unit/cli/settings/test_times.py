import pytest

from layerdag.cli.settings import seconds_of
from layerdag.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"), [("900", 900), ("15m", 900), ("1.5h", 5400), (" 2 MIN", 120), ("7s", 7)]
)
def test_times_are_numbers_with_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(text, "--budget") == seconds


def test_another_text_is_refused_with_its_flag() -> None:
    with pytest.raises(UsageError, match="--budget is 'soon'"):
        seconds_of("soon", "--budget")
