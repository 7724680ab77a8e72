"""Columns that contradict each other never reach compiled code."""

from dataclasses import replace

import numpy as np
import pytest
from trace_examples import comp

from layerdag.errors import TraceError
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.chakra.files import encode_trace
from layerdag.traces.chakra.wire import checked_columns
from layerdag.traces.trace import Attribute, NodeType, Ragged, Trace, Wire


def sound() -> Trace:
    texts = (Attribute("t", Wire.STRING, "x"), Attribute("l", Wire.INT64 + 1, (1, 2)))
    nodes = [comp(0), comp(1, 0, ctrl=(0,)), NodeSpec(2, "c", NodeType.COMP, attributes=texts)]
    return build_trace(nodes, source="x.et")


def table(trace: Trace, **changes: np.ndarray) -> Trace:
    return replace(trace, attributes=replace(trace.attributes, **changes))


def changed(column: np.ndarray, at: int, value: int) -> np.ndarray:
    column = column.copy()
    column[at] = value
    return column


T = sound()
A = T.attributes
DAMAGE = {
    "column name has 2 values, not 3": replace(T, name_N=T.name_N[:2]),
    "column io has 12 values, not 18": replace(T, io_N6=T.io_N6[:2]),
    "column data_ptr has 3 values, not 4": replace(
        T, data_deps=Ragged(T.data_deps.ptr_N1[:3], T.data_deps.values)
    ),
    "column attr_name has 3 values, not 4": table(T, name_A=A.name_A[:3]),
    "the data pointers do not run from 0 to 1": replace(
        T, data_deps=Ragged(np.array([0, 1, 0, 1]), T.data_deps.values)
    ),
    "the ctrl pointers do not run from 0 to 1": replace(
        T, ctrl_deps=Ragged(np.array([1, 1, 1, 1]), T.ctrl_deps.values)
    ),
    "the attr pointers do not run from 0 to 4": table(T, ptr_N1=np.array([0, 1, 2, 3])),
    "a name points outside the string pool": replace(T, name_N=changed(T.name_N, 0, 99)),
    "a io points outside the string pool": replace(T, io_N6=changed(T.io_N6, 0, -2)),
    "a attribute name points outside the string pool": table(T, name_A=changed(A.name_A, 1, 99)),
    "a attribute doc points outside the string pool": table(T, doc_A=changed(A.doc_A, 1, 99)),
    "a node type lies outside 0 to 10": replace(T, type_N=changed(T.type_N, 2, 11)),
    "an attribute has a wire number outside 3 to 32": table(T, wire_A=changed(A.wire_A, 0, 33)),
    "a string attribute points outside its pool": table(T, word_A=changed(A.word_A, 2, 99)),
    "a list or bytes attribute points outside its pool": table(T, word_A=changed(A.word_A, 3, 1)),
}


@pytest.mark.parametrize("says", DAMAGE)
def test_a_contradiction_is_refused_before_writing(says):
    with pytest.raises(TraceError, match=f"x.et: {says}; the trace was put together wrongly"):
        encode_trace(DAMAGE[says])


def test_wire_numbers_one_and_two_are_none():
    for number in (1, 2):
        with pytest.raises(TraceError, match="a wire number outside 3 to 32"):
            checked_columns(table(T, wire_A=changed(A.wire_A, 0, number)))
    assert checked_columns(table(T, wire_A=changed(A.wire_A, 0, Wire.UNSET)))


def test_columns_are_contiguous_and_of_the_types_that_c_reads():
    strided = replace(T, id_N=np.array([0, 9, 1, 9, 2], np.uint64)[::2])
    columns = checked_columns(strided)
    assert columns["id"].tolist() == [0, 1, 2]
    assert all(column.flags.c_contiguous for column in columns.values())
    assert {name: column.dtype.name for name, column in columns.items()} == {
        "id": "uint64", "name": "int32", "type": "uint8", "start_us": "uint64",
        "duration_us": "uint64", "data_ptr": "int64", "data_deps": "uint64", "ctrl_ptr": "int64",
        "ctrl_deps": "uint64", "io": "int32", "attr_ptr": "int64", "attr_name": "int32",
        "attr_wire": "uint8", "attr_word": "uint64", "attr_doc": "int32",
    }  # fmt: skip
