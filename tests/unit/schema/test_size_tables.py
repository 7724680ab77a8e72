"""What tables of sizes hold, and what is drawn from them."""

import numpy as np
import pytest
from checked_parts import checked

from layerdag.schema.size_tables import SizeColumn, SizeTables, fit_sizes

ROWS = [
    *({"family": "gpt", "w0": 64.0, "B0": 4.0, "n0": 16.0, "r1": 16.0} for _ in range(5)),
    *({"family": "gpt", "w0": 256.0, "B0": 4.0, "n0": 32.0, "r1": 32.0} for _ in range(10)),
    {"family": "gpt", "w0": 250.0, "B0": 4.0, "n0": 8.0},
    *({"family": "mlp", "w0": 32.0, "B0": 8.0, "label": 0.1} for _ in range(5)),
]
TABLES = fit_sizes(ROWS, np.arange(len(ROWS)), needed=5)


def column(family: str, entry: str) -> dict[int, int]:
    (found,) = [c for c in TABLES.columns if (c.family, c.entry) == (family, entry)]
    return dict(zip(found.numbers, found.programs, strict=True))


def test_numbers_that_few_programs_have_count_for_the_nearest():
    """250 is the width of one program; counts are multiples of five."""
    assert column("gpt", "w0") == {64: 5, 256: 15}
    assert column("", "w0") == {32: 5, 64: 5, 256: 15}


def test_copies_of_one_program_count_once():
    assert not fit_sizes(ROWS, np.zeros(len(ROWS), dtype=np.int64), needed=5)


def test_what_is_written_is_read_back():
    assert SizeTables(tuple(checked(SizeColumn, row) for row in TABLES.to_dict())) == TABLES


@pytest.mark.parametrize(
    "change",
    [
        {"programs": []},
        {"entry": "v0"},
        {"numbers": [0]},
        {"same": ["x"]},
        {"numbers": [], "programs": []},
    ],
)
def test_what_is_no_table_is_refused(change):
    column = {"family": "", "entry": "w0", "numbers": [64], "programs": [5], "same": []}
    assert checked(SizeColumn, column)
    with pytest.raises(ValueError, match=r"no entry with its numbers|need as many counts"):
        checked(SizeColumn, {**column, **change})


def test_numbers_are_drawn_as_programs_of_the_family_have_them():
    rng = np.random.default_rng(0)
    drawn = [TABLES.draw("w0", "gpt", rng, {}) for _ in range(2000)]
    assert set(drawn) == {64, 256}
    assert 0.7 < drawn.count(256) / 2000 < 0.8  # 15 of 20


@pytest.mark.parametrize(
    ("entry", "family", "numbers"),
    [("w0", "new", {32, 64, 256}), ("w5", "gpt", {32, 64, 256}), ("h0", "gpt", {2, 4, 8})],
)
def test_an_entry_that_is_not_known_takes_numbers_of_its_role(entry, family, numbers):
    rng = np.random.default_rng(0)
    assert {TABLES.draw(entry, family, rng, {}) for _ in range(300)} == numbers


def test_entries_that_are_always_equal_get_one_number():
    """A position embedding has a row for each place of the sequence."""
    rng = np.random.default_rng(0)
    assert TABLES.same("r1", "gpt") == ("n0",)
    assert TABLES.draw("r1", "gpt", rng, {"n0": 4096}) == 4096
    assert TABLES.draw("r1", "gpt", rng, {}) in {16, 32}
