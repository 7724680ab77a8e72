"""Files that differ in groups and peers only are decoded once, and read as if decoded each."""

import random

import numpy as np
import pytest
from symbolic_jobs import LLAMA, MIXTURE, small
from trace_examples import comp

from layerdag.errors import TraceError
from layerdag.traces import Attribute, NodeType, Trace, Wire, _interning
from layerdag.traces._interning import RankDecoder
from layerdag.traces.chakra import NodeSpec, build_trace, decode_trace, encode_trace


def _collective(id: int, group: str, name: str = "sum") -> NodeSpec:
    return NodeSpec(
        id, name, NodeType.COMM_COLL,
        attributes=(
            Attribute("comm_type", Wire.INT64, 0), Attribute("comm_size", Wire.INT64, 64),
            Attribute("pg_name", Wire.STRING, group),
        ),
    )  # fmt: skip


def _equal(mine: Trace, theirs: Trace) -> None:
    assert encode_trace(mine) == encode_trace(theirs)
    assert mine.strings == theirs.strings
    np.testing.assert_array_equal(mine.attributes.word_A, theirs.attributes.word_A)


def _decoded(trace: Trace) -> Trace:
    return decode_trace(encode_trace(trace))


@pytest.mark.parametrize("shape", [LLAMA, MIXTURE])
def test_every_rank_reads_as_if_it_had_been_decoded_and_few_are(shape, monkeypatch):
    calls = []

    def counted(data: bytes, source: str = "") -> Trace:
        calls.append(source)
        return decode_trace(data, source)

    monkeypatch.setattr(_interning, "decode_trace", counted)
    workload = small(shape, tensor=2, data=32, pipeline=2, batch=32).workload()
    decoder = RankDecoder()
    for rank, data in workload.traces.files():
        read = decoder.decode(data, f"file {rank}")
        assert read.source == f"file {rank}"
        _equal(read, decode_trace(data))
        assert decoder.decode(data, "again") is read
    assert len(calls) < 16  # one for each stage and number of digits


def test_files_that_a_decoder_would_pool_otherwise_are_decoded():
    decoder = RankDecoder()
    for groups in (("1", "2"), ("3", "4"), ("5", "5"), ("2", "1")):
        trace = build_trace([comp(0), _collective(1, groups[0]), _collective(2, groups[1])])
        _equal(decoder.decode(encode_trace(trace), ""), _decoded(trace))
    named = build_trace([comp(0), _collective(1, "7", name="7"), _collective(2, "8")])
    other = build_trace([comp(0), _collective(1, "9", name="7"), _collective(2, "8")])
    for trace in (named, other):
        _equal(decoder.decode(encode_trace(trace), ""), _decoded(trace))


def test_damage_is_found_wherever_it_lies():
    """A file with any one byte changed reads as decoding tells, faults included."""
    workload = small(LLAMA, tensor=2, data=2, pipeline=2).workload()
    data = encode_trace(workload.traces[0])
    draw = random.Random(0)
    decoder = RankDecoder()
    decoder.decode(data, "first")
    for _ in range(60):
        damaged = bytearray(data)
        damaged[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        try:
            expected = decode_trace(bytes(damaged))
        except TraceError:
            with pytest.raises(TraceError):
                decoder.decode(bytes(damaged), "")
            continue
        _equal(decoder.decode(bytes(damaged), ""), expected)


def test_places_that_look_like_a_group_but_are_none_are_not_trusted():
    fake = "\n\x07pg_name\u00ea\x01\x01x"  # in UTF-8 these are other bytes than the attribute's
    trace = build_trace([comp(0), _collective(1, "1", name=fake)])
    decoder = RankDecoder()
    _equal(decoder.decode(encode_trace(trace), ""), _decoded(trace))
    other = build_trace([comp(0), _collective(1, "2", name=fake)])
    _equal(decoder.decode(encode_trace(other), ""), _decoded(other))
