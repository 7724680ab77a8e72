import numpy as np
import pytest
from trace_examples import coll, comp, rich_trace

from layerdag.traces._interning import ColumnInterner
from layerdag.traces.chakra import build_trace, encode_trace


def test_equal_columns_are_held_once_and_different_ones_apart() -> None:
    pool = ColumnInterner()
    first, second = (
        pool.intern(build_trace([comp(0, us=us), coll(1, 0, group=name)]))
        for us, name in ((5, "1"), (6, "2"))
    )
    assert first.id_N is second.id_N
    assert first.data_deps.values is second.data_deps.values
    assert first.attributes.word_A is second.attributes.word_A
    assert first.duration_us_N is not second.duration_us_N
    assert first.strings != second.strings


def test_sharing_changes_no_content() -> None:
    assert encode_trace(ColumnInterner().intern(rich_trace())) == encode_trace(rich_trace())


def test_columns_of_one_content_but_another_type_stay_apart() -> None:
    pool = ColumnInterner()
    trace = pool.intern(build_trace([comp(0)]))
    assert trace.start_us_N.dtype == np.uint64
    assert trace.data_deps.ptr_N1.dtype == np.int64


def test_shared_columns_cannot_be_changed() -> None:
    trace = ColumnInterner().intern(build_trace([comp(0)]))
    with pytest.raises(ValueError, match="read-only"):
        trace.id_N[0] = 3
