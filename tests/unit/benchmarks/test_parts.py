"""Parts that fail, hang or die are rows; the others are measured all the same."""

import os
import time
from functools import partial

from parts import Measurement, Part, Row, run_parts


def rows_of(*parts: Part, seconds: float = 60) -> list[Row]:
    """Run parts in new processes: this one has threads, which no fork would have."""
    rows: list[Row] = []
    run_parts(parts, seconds, rows.append, "spawn")
    return [{name: row[name] for name in row if name != "row_s"} for row in rows]


def part(seconds: float, **works: partial) -> Part:
    measurements = [Measurement({"what": name}, work) for name, work in works.items()]
    return Part("p", seconds, measurements)


def test_what_fails_is_a_row_and_a_process_that_dies_leaves_one_for_each_lost_measurement():
    died = "the process ended with code 3"
    lost = {"dies": partial(os._exit, 3), "lost": partial(dict)}
    found = rows_of(
        part(60, bad=partial(int, "x"), good=partial(dict, n=1), **lost),
        part(60, other=partial(dict, n=2)),
    )
    failed = "ValueError: invalid literal for int() with base 10: 'x'"
    assert found == [
        {"part": "p", "what": "bad", "error": failed},
        {"part": "p", "what": "good", "n": 1},
        {"part": "p", "what": "dies", "error": died},
        {"part": "p", "what": "lost", "error": died},
        {"part": "p", "what": "other", "n": 2},
    ]


def test_a_part_that_takes_too_long_is_killed():
    start = time.monotonic()
    (row,) = rows_of(part(1, slow=partial(time.sleep, 600)))
    assert row == {"part": "p", "what": "slow", "error": "not done in 1 s"}
    assert time.monotonic() - start < 300


def test_no_part_begins_when_the_time_is_used_up():
    error = "not begun: the 0 s of all parts are used up"
    assert rows_of(part(60, late=partial(dict)), seconds=0) == [
        {"part": "p", "what": "late", "error": error}
    ]
