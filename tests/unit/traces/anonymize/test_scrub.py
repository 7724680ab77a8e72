import pytest
from trace_examples import EVERY_VALUE, coll, comp, message

from layerdag.traces import Attribute, NodeType, Wire, Workload
from layerdag.traces.analysis import match_communication
from layerdag.traces.anonymize import public_operators, scrub
from layerdag.traces.chakra import NodeSpec, build_trace, encode_trace

SECRET = "SecretProject"


def secret_workload() -> Workload:
    attributes = (
        *EVERY_VALUE,
        Attribute(SECRET, Wire.INT64, 1),
        Attribute("device", Wire.STRING, f"cuda:{SECRET}"),
        Attribute("dtype", Wire.STRING, "float32"),
        Attribute("dtype", Wire.STRING, f"float32 of {SECRET}"),
        Attribute("num_ops", Wire.STRING, SECRET),
        Attribute("num_ops", Wire.INT64, 12, doc=SECRET),
        Attribute("involved_dim", Wire.STRING + 1, (SECRET,)),
    )
    nodes = [
        NodeSpec(
            90, f"{SECRET}::layer", NodeType.COMP, start_us=123456, attributes=attributes,
            io=(SECRET,) * 6,
        ),
        comp(95, 90, name="aten::mm(17)"),
        coll(97, 95, group="8812"),
        message(99, NodeType.COMM_SEND, 1, 97, tag=31337),
    ]  # fmt: skip
    metadata = (Attribute("host", Wire.STRING, SECRET),)
    sender = build_trace(nodes, metadata=metadata, version="1.0.0", source=SECRET)
    receiver = build_trace(
        [coll(5, group="8812"), message(6, NodeType.COMM_RECV, 0, 5, tag=31337)], version="1.0.0"
    )
    return Workload((sender, receiver), {"8812": (0, 1)}, SECRET)


def test_no_private_byte_remains() -> None:
    clean, _ = scrub(secret_workload())
    data = b"".join(map(encode_trace, clean.traces))
    for word in (SECRET, "doc", "Größe", "8812", "host", "doubles"):
        assert word.encode() not in data
    assert all(SECRET not in text for trace in clean.traces for text in trace.strings)
    assert SECRET not in clean.source


def test_structure_durations_and_communication_remain() -> None:
    clean, _ = scrub(secret_workload())
    first = clean.traces[0]
    assert first.names() == ["COMP", "aten::mm", "COMM_COLL", "COMM_SEND"]
    assert first.id_N.tolist() == [0, 1, 2, 3]
    assert [first.data_deps.of(row).tolist() for row in range(4)] == [[], [0], [1], [2]]
    assert first.duration_us_N.tolist() == [0, 5, 0, 0]
    assert first.start_us_N.tolist() == [0, 0, 0, 0]
    assert first.integers("num_ops")[0].tolist() == [12, 0, 0, 0]
    assert clean.groups == {"1": (0, 1)}
    assert match_communication(clean).mismatches == ()


def test_report_says_what_went() -> None:
    _, report = scrub(secret_workload())
    assert report.replaced_names == 5
    assert report.kept_names == 1
    assert report.removed_attributes[SECRET] == 1
    assert report.removed_attributes["device"] == 1
    assert report.removed_attributes["dtype"] == 1
    assert report.removed_io == 6
    assert report.removed_start_times == 1
    assert report.removed_metadata == 1
    assert report.renamed_groups == 1
    assert report.renumbered_tags == 1


def numbered(streams: list[int], priorities: list[int]) -> Workload:
    nodes = [
        NodeSpec(
            at,
            "aten::mm",
            NodeType.COMP,
            data_deps=(at - 1,) if at else (),
            attributes=(
                Attribute("stream", Wire.INT64, stream),
                Attribute("comm_priority", Wire.INT32, priority),
            ),
        )
        for at, (stream, priority) in enumerate(zip(streams, priorities, strict=True))
    ]
    return Workload((build_trace(nodes, version="1.0.0"),), {}, "numbered")


def test_streams_are_counted_anew_and_priorities_keep_their_order_alone() -> None:
    clean, report = scrub(numbered([140211, 7, 140211, 20], [-99, 1000, 5, -99]))
    assert clean.traces[0].integers("stream")[0].tolist() == [0, 1, 0, 2]
    assert clean.traces[0].integers("comm_priority")[0].tolist() == [0, 2, 1, 0]
    assert (report.renumbered_streams, report.renumbered_priorities) == (3, 3)


@pytest.mark.parametrize("name", ["stream", "comm_priority", "comm_tag", "dtype"])
def test_a_well_known_name_with_another_type_of_value_goes(name: str) -> None:
    node = NodeSpec(
        0, "aten::mm", NodeType.COMP, attributes=(Attribute(name, Wire.STRING, SECRET),)
    )
    clean, report = scrub(Workload((build_trace([node]),), {}, "x"))
    assert report.removed_attributes == {name: 1}
    assert SECRET.encode() not in encode_trace(clean.traces[0])


def test_scrubbing_twice_changes_nothing() -> None:
    once, _ = scrub(secret_workload())
    twice, _ = scrub(once)
    assert [encode_trace(t) for t in twice.traces] == [encode_trace(t) for t in once.traces]


def test_vocabulary_is_pytorchs_own() -> None:
    names = public_operators()
    assert {"aten::mm", "aten::convolution_backward", "c10d::allreduce_"} <= names
    assert not any(name.startswith("#") for name in names)
