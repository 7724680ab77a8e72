"""Whatever is written is read again; whatever is read ends in a trace or in one sentence."""

import contextlib
import json

import numpy as np
from hypothesis import given, strategies as st
from laws import tried
from trace_examples import pair_workload, rich_trace

from layerdag.codec.vocabulary import scrub
from layerdag.errors import TraceError
from layerdag.traces.analysis import match_communication
from layerdag.traces.astra_text import parse_text, text_to_workload
from layerdag.traces.builder import NodeSpec, build_trace, list_to_payload, payload_to_list
from layerdag.traces.chakra.files import decode_trace, encode_trace, normalize
from layerdag.traces.chakra.json_forms import (
    decode_feeder_json,
    decode_trace_json,
    encode_feeder_json,
    encode_trace_json,
)
from layerdag.traces.trace import Attribute, Wire, Workload, dependency_edges

# A shared machine may stall for longer than the deadline of an example.
unhurried = tried(60)

INTEGERS = {
    Wire.INT32: st.integers(-(2**31), 2**31 - 1),
    Wire.INT64: st.integers(-(2**63), 2**63 - 1),
    Wire.UINT32: st.integers(0, 2**32 - 1),
    Wire.UINT64: st.integers(0, 2**64 - 1),
    Wire.SINT32: st.integers(-(2**31), 2**31 - 1),
    Wire.SINT64: st.integers(-(2**63), 2**63 - 1),
    Wire.FIXED32: st.integers(0, 2**32 - 1),
    Wire.FIXED64: st.integers(0, 2**64 - 1),
    Wire.SFIXED32: st.integers(-(2**31), 2**31 - 1),
    Wire.SFIXED64: st.integers(-(2**63), 2**63 - 1),
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
VALUES = {
    **INTEGERS,
    Wire.DOUBLE: st.floats(allow_nan=False),
    Wire.FLOAT: st.floats(width=32, allow_nan=False),
    Wire.BOOL: st.booleans(),
    Wire.STRING: TEXTS,
    Wire.BYTES: st.binary(max_size=9),
}


def attribute_of(wire: Wire):
    one = VALUES[wire].map(lambda value: (int(wire), value))
    many = st.lists(VALUES[wire], max_size=4).map(lambda values: (wire + 1, tuple(values)))
    return st.tuples(TEXTS, one | many, TEXTS).map(lambda t: Attribute(t[0], *t[1], t[2]))


ATTRIBUTES = st.sampled_from(list(VALUES)).flatmap(attribute_of)


# Fields of nodes; the nodes are made in the tests, since beartype draws random numbers to check.
@st.composite
def specs(draw) -> list[dict]:
    ids = draw(st.lists(INTEGERS[Wire.UINT64], unique=True, max_size=6))
    deps = st.lists(st.sampled_from(ids), max_size=4) if ids else st.just([])
    return [
        dict(
            id=node,
            name=draw(TEXTS),
            type=draw(st.integers(0, 7)),
            data_deps=tuple(draw(deps)),
            ctrl_deps=tuple(draw(deps)),
            start_us=draw(INTEGERS[Wire.UINT64]),
            duration_us=draw(INTEGERS[Wire.UINT64]),
            attributes=tuple(draw(st.lists(ATTRIBUTES, max_size=3))),
            io=tuple(draw(st.none() | TEXTS) for _ in range(6)),
        )
        for node in ids
    ]


@unhurried
@given(specs(), st.lists(ATTRIBUTES, max_size=2))
def test_chakra_round_trip(fields, metadata):
    nodes = [NodeSpec(**each) for each in fields]
    data = encode_trace(build_trace(nodes, metadata=tuple(metadata)))
    trace = decode_trace(data)
    assert encode_trace(trace) == data
    assert trace.id_N.tolist() == [node.id for node in nodes]
    assert trace.names() == [node.name for node in nodes]
    assert trace.metadata == tuple(metadata)


@unhurried
@given(specs())
def test_json_round_trip(fields):
    workload = Workload((build_trace([NodeSpec(**each) for each in fields]),))
    again = decode_trace_json(encode_trace_json(workload))
    assert encode_trace(again.traces[0]) == encode_trace(workload.traces[0])


@unhurried
@given(st.sampled_from(list(VALUES)).flatmap(lambda w: st.tuples(st.just(w), st.lists(VALUES[w]))))
def test_list_round_trip(case):
    wire, values = case
    assert payload_to_list(wire + 1, list_to_payload(wire + 1, values)) == tuple(values)


def whole() -> list[bytes]:
    pair = pair_workload()
    return [
        encode_trace(rich_trace()),
        encode_trace(pair.traces[0]),
        encode_trace_json(Workload((rich_trace(),))),
        encode_feeder_json(pair.traces[1]),
        b"HYBRID_TRANSFORMER model_parallel_NPU_group: 1\n1\n"
        b"a -1 1 NONE 0 2 NONE 0 3 ALLREDUCE 8 4",
    ]


WHOLE = whole()


@st.composite
def damaged(draw) -> bytes:
    """Change, insert, repeat or cut bytes of a sound file."""
    data = bytearray(draw(st.sampled_from(WHOLE)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            data[at : at + 1] = bytes([draw(st.integers(0, 255))])
        elif kind == 1:
            data[at:at] = draw(st.binary(max_size=12))
        elif kind == 2:
            data[at:at] = data[at : at + draw(st.integers(0, 40))]
        else:
            del data[at : at + draw(st.integers(0, 40))]
    return bytes(data)


@unhurried
@given(damaged() | st.binary(max_size=200))
def test_readers_end_in_a_trace_or_one_sentence(data):
    readers = (
        lambda: Workload((decode_trace(data),)),
        lambda: Workload((decode_feeder_json(data),)),
        lambda: decode_trace_json(data),
        lambda: text_to_workload(parse_text(data), 1),
    )
    for reader in readers:
        try:
            found = reader()
        except TraceError:
            continue
        if isinstance(found, Workload):
            look_at(found)


def look_at(workload: Workload) -> None:
    """Do with a damaged but readable workload what the verbs do."""
    for action in (
        lambda: [encode_trace(trace) for trace in workload.traces],
        lambda: encode_trace_json(workload),
        lambda: [normalize(trace) for trace in workload.traces],
        lambda: match_communication(workload),
        lambda: scrub(workload),
    ):
        with contextlib.suppress(TraceError):
            action()


@unhurried
@given(damaged())
def test_what_the_scanner_accepts_can_be_decoded(data):
    try:
        trace = decode_trace(data)
    except TraceError:
        return
    assert encode_trace_json(Workload((trace,)))


@unhurried
@given(st.integers(0, 30), st.randoms(use_true_random=False))
def test_edges_do_not_depend_on_ids(size, random):
    ids = random.sample(range(2**62), size)
    pairs = [(a, b) for b in range(size) for a in range(b) if random.random() < 0.2]
    nodes = [
        NodeSpec(ids[b], "", 4, tuple(ids[a] for a, child in pairs if child == b))
        for b in range(size)
    ]
    edges, _ = dependency_edges(build_trace(nodes))
    assert sorted(zip(*edges.tolist(), strict=True)) == sorted(pairs)
    assert edges.dtype == np.int64
    json.dumps(edges.tolist())
