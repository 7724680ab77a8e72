"""What a page of differences says first."""

from dataclasses import replace

import pytest
from raw_graphs import chain

from layerdag.report.differences._verdicts import verdicts
from layerdag.workloads.differences import Communication, Difference, Figure, diff

EVERY = {"structure", "operators", "communication", "time"}


def equal() -> Difference:
    return diff(chain("a", "ab"), chain("a", "ab"))


def test_equal_programs_are_told_so_without_times_that_none_has() -> None:
    (program,) = verdicts(equal(), EVERY)
    assert (program.answer, program.tone) == ("yes", "good")
    assert program.reason == "2 nodes correspond, 0 are only in A and 0 only in B."


def test_other_programs_are_told_with_how_much_corresponds() -> None:
    program = verdicts(diff(chain("a", "abcde"), chain("b", "abxxde")), EVERY)[0]
    assert (program.answer, program.tone, program.at) == ("no", "poor", "structure")
    assert program.reason == "4 nodes correspond, 1 are only in A and 2 only in B."


def test_communication_is_summed() -> None:
    rows = (
        Communication("ALL_REDUCE", 2, (4, 4), (1024, 1024)),
        Communication("message", 2, (1, 0), (1024, 0)),
    )
    _, found = verdicts(replace(equal(), communication=rows), EVERY)
    assert found.answer == "no"
    assert found.reason == "A has 5 collectives and messages of 2 KiB, B has 4 of 1 KiB."


@pytest.mark.parametrize(
    ("a", "b", "told", "tone", "words"),
    [
        (1000.0, 1001.0, "yes", "good", "1.00 ms, that of B 1.00 ms"),
        (1000.0, 1040.0, "+4 %", "good", "1.00 ms, that of B 1.04 ms"),
        (200.0, 100.0, "-50 %", "poor", "200 us, that of B 100 us"),
        (4e6, 5e6, "+25 %", "fair", "4.00 s, that of B 5.00 s"),
    ],
)
def test_time_is_told_in_percent_and_in_units_that_people_read(
    a: float, b: float, told: str, tone: str, words: str
) -> None:
    times = (Figure("compute", 1.0, 9.0, "us"), Figure("simulated makespan", a, b, "us"))
    _, found = verdicts(replace(equal(), times=times), EVERY)
    assert (found.answer, found.tone) == (told, tone)
    assert words in found.reason
    assert "simulated makespan" in found.reason


def test_a_verdict_links_to_nothing_that_the_page_lacks() -> None:
    (program,) = verdicts(equal(), set())
    assert program.at == ""
