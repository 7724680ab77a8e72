import pytest
from broken_jobs import BROKEN
from small_workloads import collective, compute, integer, trace, with_attribute

from layerdag.evaluation.fixes._trace import (
    drop_dangling,
    drop_doubles,
    drop_own,
    write_feeder_types,
    write_integers,
)
from layerdag.traces import Attribute, Wire


@pytest.mark.parametrize("fix", [drop_dangling, drop_own, drop_doubles])
def test_sound_dependencies_are_left_alone(fix) -> None:
    assert fix(trace(compute(1), compute(2, 1), compute(3, 1, 2, ctrl_deps=(1,)))) is None


def test_dependencies_keep_their_order() -> None:
    fixed = drop_doubles(trace(compute(1), compute(2), compute(3, 2, 1, 2, 1)))
    assert fixed is not None
    assert fixed.trace.data_deps.of(2).tolist() == [2, 1]


def test_a_dependency_may_be_listed_once_as_each_kind() -> None:
    assert drop_doubles(trace(compute(1), compute(2, 1, ctrl_deps=(1,)))) is None


def test_all_absent_nodes_are_dropped_of_both_kinds() -> None:
    fixed = drop_dangling(BROKEN["no-dangling-dependency"].traces[0])
    assert fixed is not None
    assert fixed.trace.data_deps.values.tolist() == [1]
    assert fixed.trace.ctrl_deps.values.size == 0
    assert fixed.done_N.tolist() == [False, True]


@pytest.mark.parametrize(
    ("held", "value"),
    [
        (Attribute("comm_size", Wire.DOUBLE, 4096.0), 4096),
        (Attribute("comm_size", Wire.FLOAT, 2.0**40), 2**40),
        (Attribute("comm_size", Wire.STRING, "4096"), 4096),
        (Attribute("comm_size", Wire.STRING, "-1"), -1),
    ],
)
def test_whole_numbers_become_integers(held: Attribute, value: int) -> None:
    fixed = write_integers(trace(with_attribute(collective(1), held)))
    assert fixed is not None
    assert fixed.trace.integers("comm_size")[0].tolist() == [value]


@pytest.mark.parametrize(
    "held",
    [
        Attribute("comm_size", Wire.DOUBLE, 0.5),
        Attribute("comm_size", Wire.DOUBLE, float("nan")),
        Attribute("comm_size", Wire.DOUBLE, 1e300),
        Attribute("comm_size", Wire.STRING, "4 KiB"),
        Attribute("comm_size", Wire.STRING, ""),
        Attribute("comm_size", Wire.INT64 + 1, (4096,)),
    ],
)
def test_what_is_no_whole_number_stays(held: Attribute) -> None:
    assert write_integers(trace(with_attribute(collective(1), held))) is None


def test_a_value_that_does_not_fit_keeps_its_type() -> None:
    large = with_attribute(collective(1), integer("comm_priority", 2**40))
    assert write_feeder_types(trace(large)) is None
