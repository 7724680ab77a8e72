"""What may be written: estimates, limits and how they are told."""

import pytest

from layerdag._runtime import (
    NODE_BYTES,
    Limits,
    format_size,
    require_few_bytes,
    require_few_ranks,
    written_bytes,
)
from layerdag.errors import UsageError


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0.0 kB"),
        (1500, "1.5 kB"),
        (999_000, "999.0 kB"),
        (10**6, "1.0 MB"),
        (2_350_000, "2.4 MB"),
        (16 * 10**9, "16.0 GB"),
        (5 * 10**12, "5.0 TB"),
        (1_234 * 10**12, "1,234.0 TB"),
    ],
)
def test_sizes_are_told_in_the_unit_that_people_use(size: int, expected: str) -> None:
    assert format_size(size) == expected


@pytest.mark.parametrize("file_format", sorted(NODE_BYTES))
def test_the_estimate_grows_with_the_nodes(file_format: str) -> None:
    assert written_bytes(0, file_format) == 0
    assert written_bytes(10, file_format) == 10 * NODE_BYTES[file_format] > 100


@pytest.mark.parametrize("name", ["max_ranks", "max_bytes"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_is_at_least_one(name: str, value: int) -> None:
    with pytest.raises(UsageError, match=f"'{name}' must be at least 1, found {value}"):
        Limits(**{name: value})


def test_ranks_up_to_the_limit_pass_and_more_are_refused_with_the_setting() -> None:
    limits = Limits(max_ranks=4096)
    require_few_ranks(4096, limits, "job 7")
    with pytest.raises(UsageError, match=r"^job 7: 4,097 ranks are more than max_ranks, 4,096;"):
        require_few_ranks(4097, limits, "job 7")


def test_bytes_up_to_the_limit_pass_and_more_are_refused_with_the_setting() -> None:
    limits = Limits(max_bytes=2 * 10**6)
    require_few_bytes(2 * 10**6, limits, "samples")
    with pytest.raises(
        UsageError, match=r"^samples: about 3\.5 GB are more than max_bytes, 2\.0 MB; ask for less"
    ):
        require_few_bytes(3_500_000_000, limits, "samples")
