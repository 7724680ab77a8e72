"""Figures of a compiled program: sums by operator, collectives, the time between them."""

import pytest

from layerdag.workloads.hlo._hardware import Hardware
from layerdag.workloads.hlo._program import Collective, Computation, Program
from layerdag.workloads.hlo._summary import summarize_program

DEVICE = Hardware(1e9, 1e9, name="unit")
PROGRAM = Program(
    "step",
    2,
    (
        Computation("dot_general", 4 * 10**9, 8, "f32", (), matrix=True),
        Computation("add", 5, 10**9, "f32", (0,)),
        Collective("all_reduce", 100, (), (), (1,)),
        Computation("dot_general", 2 * 10**9, 8, "f32", (2,), matrix=True),
        Collective("all_reduce", 28, (), (), (3,)),
    ),
    ("one note",),
)


def test_totals_are_the_sums_of_the_operators() -> None:
    found = summarize_program(PROGRAM, DEVICE)
    assert found.flops == sum(row.flops for row in found.operators) == 6 * 10**9 + 5
    assert found.mem_bytes == sum(row.mem_bytes for row in found.operators) == 10**9 + 16
    assert found.operations == sum(row.count for row in found.operators) == 3
    # 4 s and 2 s of products, 1 s of moving a gigabyte.
    assert found.runtime_s == pytest.approx(7.0)


def test_operators_with_most_time_come_first_and_without_hardware_those_with_most_bytes() -> None:
    assert [row.name for row in summarize_program(PROGRAM, DEVICE).operators] == [
        "dot_general",
        "add",
    ]
    assert [row.name for row in summarize_program(PROGRAM).operators] == ["add", "dot_general"]


def test_collectives_are_counted_with_what_a_device_gives() -> None:
    assert summarize_program(PROGRAM).collectives == {"all_reduce": {"count": 2, "bytes": 128}}


def test_regions_lie_between_collectives_and_have_all_the_time() -> None:
    found = summarize_program(PROGRAM, DEVICE)
    assert [region.seconds for region in found.regions] == pytest.approx([5.0, 2.0])
    assert sum(region.operations for region in found.regions) == found.operations


def test_without_hardware_there_is_no_time_and_no_region() -> None:
    found = summarize_program(PROGRAM)
    assert (found.runtime_s, found.hardware, found.regions) == (None, None, ())
    assert all(row.runtime_s is None for row in found.operators)


def test_the_lines_name_devices_totals_communication_and_notes() -> None:
    lines = str(summarize_program(PROGRAM, DEVICE)).splitlines()
    assert lines[0] == "step: 2 devices, 3 operations on each"
    assert lines[1].endswith("7,000,000.000 us on unit")
    assert lines[2] == "all_reduce: 2, 0.000 MB from each device"
    assert lines[-1] == "one note"


def test_an_empty_program_takes_no_time() -> None:
    found = summarize_program(Program("empty", 1, ()), DEVICE)
    assert (found.operations, found.flops, found.runtime_s) == (0, 0, 0)
    assert str(found).startswith("empty: 1 device, 0 operations on each")


def test_plain_data_has_the_seconds_of_regions() -> None:
    document = summarize_program(PROGRAM, DEVICE).to_dict()
    assert [region["runtime_s"] for region in document["regions"]] == pytest.approx([5.0, 2.0])
    assert set(document["regions"][0]) == {
        "name",
        "operations",
        "flops",
        "mem_bytes",
        "runtime_s",
    }
