"""Private words in the files of a release."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from simulator_traces import comp, workload
from trace_examples import EVERY_VALUE, coll, comp as comp_trace_examples, message

from layerdag.codec.vocabulary import (
    OTHER,
    find_leaked_strings,
    is_communication,
    operators,
    private_strings,
    public_device,
    public_dtype,
    public_name,
    public_operators,
    scrub,
)
from layerdag.errors import DataError, TraceError
from layerdag.traces.analysis import match_communication
from layerdag.traces.builder import NodeSpec, attribute_at, build_trace
from layerdag.traces.chakra.files import encode_trace
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.trace import (
    Attribute,
    NodeType,
    Wire,
    Workload,
    dependency_edges,
    trace_layers,
)


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("aten::mm", "aten::mm"),
        ("aten::add.Tensor", "aten::add"),
        ("c10d::all_reduce", "c10d::all_reduce"),
        ("c10d::recv", "c10d::recv"),
        ("aten::acme_secret_kernel", OTHER),
        ("acme::mm", OTHER),
        ("## forward ##", OTHER),
    ],
)
def test_only_operators_of_pytorch_are_public(name, public):
    assert public_name(name) == public


STAGE_NAME = "mb0.transformer.7.mha.qkv@1_COMP"


@pytest.mark.parametrize(
    ("name", "stated", "usual", "every"),
    [
        ("aten::add.Tensor", "", "aten::add", "aten::add"),
        (STAGE_NAME, "M", "M", "mb0.transformer.mha.qkv_COMP"),
        (STAGE_NAME, "acme", OTHER, "mb0.transformer.mha.qkv_COMP"),
        ("region 12", "", "region", "region"),
        ("flash_attn::fwd", "", OTHER, "flash_attn::fwd"),
        ("triton_poi_fused_add_3", "", OTHER, "triton_poi_fused_add"),
        ("12", "", OTHER, "12"),
        ("", "", OTHER, OTHER),
    ],
)
def test_operators_have_the_name_that_is_public_allowed_or_stated(name, stated, usual, every):
    attributes = (Attribute("op_type", Wire.STRING, stated),) if stated else ()
    trace = build_trace([NodeSpec(0, name, NodeType.COMP, attributes=attributes)])
    assert operators(trace) == [usual]
    assert operators(trace, "all") == [every]
    assert operators(trace, [every]) == [every if every != OTHER else usual]


def test_communication_is_called_by_what_it_does():
    nodes = [
        NodeSpec(0, "all_reduce:data", NodeType.COMM_COLL, attributes=(_collective(0),)),
        NodeSpec(1, "c10d::barrier", NodeType.COMM_COLL, attributes=(_collective(5),)),
        NodeSpec(2, "acme", NodeType.COMM_COLL, attributes=(_collective(77),)),
        NodeSpec(3, "send.F0", NodeType.COMM_SEND),
        NodeSpec(4, "recv.F0", NodeType.COMM_RECV),
    ]
    names = ["c10d::all_reduce", "c10d::barrier", OTHER, "c10d::send", "c10d::recv"]
    assert operators(build_trace(nodes)) == names


def _collective(code: int) -> Attribute:
    return Attribute("comm_type", Wire.INT64, code)


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("mm.bottom2.B0.dw", "mm.bottom.B.dw"),
        ("act.3.F0.T7", "act.F"),
        ("mm.qkv.31.F0", "mm.qkv.F"),
        ("mm.qkv.3.B12.dx", "mm.qkv.B.dx"),
        ("attention.0.B1.again", "attention.B.again"),
        ("norm.F0", "norm.F"),
        ("adam", "adam"),
        ("mm.secret.3.F0", OTHER),
        ("acme.3.F0", OTHER),
        ("norm.F0.secret", OTHER),
        ("adam_of_acme", OTHER),
        *((word, OTHER) for word in ("out", "top.7", "mm.up.down.F0", "up.down.up", "F0.loss")),
    ],
)
def test_operators_of_workloads_lose_layer_and_micro_batch(name, public):
    assert public_name(name) == public
    assert public_name(public) == public  # what a sample is called is read again as the same
    clean, _ = scrub(Workload((build_trace([NodeSpec(0, name, NodeType.COMP)]),)))
    assert clean.traces[0].names() == ["COMP" if public == OTHER else public]


def test_number_formats_are_no_private_words_and_stay_where_they_are_stated():
    stated = tuple(
        Attribute(name, Wire.STRING, word)
        for name, word in (("dtype", "bfloat16"), ("model", "acme-7b"))
    )
    job = Workload((build_trace([NodeSpec(0, "mm.up.0.F0", NodeType.COMP)], metadata=stated),))
    assert scrub(job)[0].traces[0].metadata == stated[:1]
    assert private_strings(job) == {"mm.up.0.F0", "model", "acme-7b"}


def test_devices_lose_their_index_and_private_ones_their_name():
    assert [public_device(word) for word in ("cuda:3", "CPU", "acme-npu")] == ["cuda", "cpu", OTHER]


def test_only_data_types_are_public():
    words = ("float32", "bfloat16", "float8_e4m3fn", "AcmeType", "float32 secret")
    assert [public_dtype(word) for word in words] == [*words[:3], OTHER, OTHER]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("c10d::all_reduce", True),
        ("c10d::send", True),
        ("_c10d_functional::all_reduce", True),
        ("aten::all", False),
        (OTHER, False),
    ],
)
def test_communication_is_told_by_the_room_of_its_name(name, expected):
    assert is_communication(name) is expected


def named(*names: str) -> Workload:
    nodes = [NodeSpec(id=i, name=name, type=4, duration_us=3) for i, name in enumerate(names)]
    return Workload((build_trace(nodes),))


def test_private_words_are_those_that_anonymizing_takes_out():
    found = private_strings(named("aten::mm", "acme_flash_v7_kernel"))
    assert "acme_flash_v7_kernel" in found
    assert "aten::mm" not in found
    assert not private_strings(workload([comp(0, 1)])) & {"comp", "aten::mm"}


def test_words_are_found_in_text_names_of_files_and_traces(tmp_path):
    (tmp_path / "report.html").write_text("<p>as in runs/acme-gpt_77b/3</p>")
    (tmp_path / "acme-gpt_77b.csv").write_text("name\n")
    write_workload(named("aten::mm", "acme_kernel_9"), tmp_path / "job")
    found = {
        (one.file, one.word) for one in find_leaked_strings(tmp_path, ["acme-gpt_77b", "other_1"])
    }
    assert ("acme-gpt_77b.csv", "acme-gpt_77b") in found
    assert ("job.0.et", "acme_kernel_9") in found  # private or not: nothing but public words
    assert ("report.html", "acme-gpt_77b") in found
    assert len(found) == 3
    [sentence] = [
        one.sentence() for one in find_leaked_strings(tmp_path, []) if one.file == "job.0.et"
    ]
    assert sentence == "job.0.et: holds 'acme_kernel_9', a word of the private traces."


def test_a_word_inside_a_path_is_found(tmp_path):
    (tmp_path / "a.json").write_text('{"at": "/data/acme_77/run.et", "b": "with acme_78."}')
    found = {one.word for one in find_leaked_strings(tmp_path, ["acme_77", "acme_78", "acme_79"])}
    assert found == {"acme_77", "acme_78"}


def test_an_archive_is_searched_or_refused_but_never_passed_over(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", words=np.array(["acme_77"]), acme_78=np.zeros(2))
    assert {one.word for one in find_leaked_strings(tmp_path, ["acme_78"])} == {"acme_78"}
    path = tmp_path / "a.npz"
    content = path.read_bytes()
    path.write_bytes(content[:60] + b"xxxx" + content[64:])
    with pytest.raises(DataError, match=r"a\.npz: is an archive that cannot be searched"):
        list(find_leaked_strings(tmp_path, ["acme_78"]))


def test_plain_words_and_numbers_are_no_evidence_in_prose(tmp_path):
    (tmp_path / "report.html").write_text("training jobs of 2048 nodes")
    assert not list(find_leaked_strings(tmp_path, ["training", "2048", "jobs", "of"]))


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
        comp_trace_examples(95, 90, name="aten::mm(17)"),
        coll(97, 95, group="8812"),
        message(99, NodeType.COMM_SEND, 1, 97, tag=31337),
    ]  # fmt: skip
    metadata = (Attribute("host", Wire.STRING, SECRET),)
    sender = build_trace(nodes, metadata=metadata, version="1.0.0", source=SECRET)
    receiver = build_trace(
        [coll(5, group="8812"), message(6, NodeType.COMM_RECV, 0, 5, tag=31337)], version="1.0.0"
    )
    return Workload((sender, receiver), {"8812": (0, 1)}, SECRET)


def test_no_private_byte_remains():
    clean, _ = scrub(secret_workload())
    data = b"".join(map(encode_trace, clean.traces))
    for word in (SECRET, "doc", "Größe", "8812", "host", "doubles"):
        assert word.encode() not in data
    assert all(SECRET not in text for trace in clean.traces for text in trace.strings)
    assert SECRET not in clean.source


def test_structure_durations_and_communication_remain():
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


def test_report_says_what_went():
    _, report = scrub(secret_workload())
    assert report["replaced names"] == 5
    assert report["kept names"] == 1
    assert report[f"attribute {SECRET}"] == 1
    assert report["attribute device"] == 1
    assert report["attribute dtype"] == 1
    assert report["io"] == 6
    assert report["start times"] == 1
    assert report["metadata"] == 1
    assert report["groups"] == 1
    assert report["tags"] == 1


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


def test_streams_are_counted_anew_and_priorities_keep_their_order_alone():
    clean, report = scrub(numbered([140211, 7, 140211, 20], [-99, 1000, 5, -99]))
    assert clean.traces[0].integers("stream")[0].tolist() == [0, 1, 0, 2]
    assert clean.traces[0].integers("comm_priority")[0].tolist() == [0, 2, 1, 0]
    assert (report["streams"], report["priorities"]) == (3, 3)


def test_scrubbing_twice_changes_nothing():
    once, _ = scrub(secret_workload())
    twice, _ = scrub(once)
    assert [encode_trace(t) for t in twice.traces] == [encode_trace(t) for t in once.traces]


def test_vocabulary_is_pytorchs_own():
    names = public_operators()
    assert {"aten::mm", "aten::convolution_backward", "c10d::allreduce_"} <= names
    assert not any(name.startswith("#") for name in names)


@pytest.mark.parametrize(
    "name",
    ["fsdp::all_gather_copy_in", "fsdp::chunk_cat", "fsdp::split_with_sizes_copy",
     "symm_mem::fused_all_gather_matmul", "c10d_functional::all_reduce"],
)  # fmt: skip
def test_operators_of_sharded_training_are_public_though_pytorch_registers_them_late(name):
    assert name in public_operators()
    clean, _ = scrub(Workload((build_trace([comp_trace_examples(1, name=name)]),)))
    assert clean.traces[0].names() == [name]


@pytest.mark.parametrize(
    ("wire", "value"),
    [
        (Wire.INT32 + 1, (1, 2)),
        (Wire.STRING + 1, ("secret",)),
        (Wire.DOUBLE, 1.5),
        (Wire.BOOL, True),
        (Wire.BYTES, b"secret"),
        (Wire.UNSET, None),
    ],
)
def test_a_group_name_that_is_neither_text_nor_integer_goes(wire, value):
    node = NodeSpec(0, "a", NodeType.COMP, attributes=(Attribute("pg_name", wire, value),))
    clean, report = scrub(Workload((build_trace([node]),)))
    assert report["attribute pg_name"] == 1
    assert clean.traces[0].attributes.wire_A.size == 0


@pytest.mark.parametrize(("wire", "value"), [(Wire.INT64, 77), (Wire.STRING, "77")])
def test_a_group_keeps_the_type_of_its_name(wire, value):
    node = NodeSpec(0, "a", NodeType.COMP, attributes=(Attribute("pg_name", wire, value),))
    clean, _ = scrub(Workload((build_trace([node]),), {"5": (0,), "77": (0,)}))
    trace = clean.traces[0]
    assert attribute_at(trace.attributes, 0, trace.strings).value == type(value)(2)
    assert dict(clean.groups) == {"1": (0,), "2": (0,)}


def test_groups_that_nobody_described_are_counted_on_and_the_world_keeps_its_name():
    nodes = [
        coll(0, group="secret"),
        coll(1, group="0"),
        coll(2, group=""),
        coll(3, group="secret"),
    ]
    clean, report = scrub(Workload((build_trace(nodes),), {"known": (0,)}))
    assert clean.traces[0].texts("pg_name")[0] == ["2", "0", "", "2"]
    assert report["groups"] == 2


def test_tags_get_one_number_on_all_ranks():
    """Else a send and its receive would no longer match."""
    first = build_trace([message(0, NodeType.COMM_SEND, 1, tag=900)])
    second = build_trace(
        [message(0, NodeType.COMM_RECV, 0, tag=50), message(1, NodeType.COMM_RECV, 0, tag=900)]
    )
    clean, report = scrub(Workload((first, second)))
    assert clean.traces[0].integers("comm_tag")[0].tolist() == [0]
    assert clean.traces[1].integers("comm_tag")[0].tolist() == [1, 0]
    assert report["tags"] == 2


def test_nodes_are_numbered_in_program_order_and_names_lose_call_numbers():
    nodes = [
        comp_trace_examples(70, 5, name="aten::add(3)"),
        comp_trace_examples(5, name="my_model.layer1"),
        comp_trace_examples(90, 70, ctrl=(5,)),
    ]
    clean, report = scrub(Workload((build_trace(nodes),)))
    trace = clean.traces[0]
    assert trace.id_N.tolist() == [0, 1, 2]
    assert trace.names() == ["COMP", "aten::add", "aten::mm"]
    assert trace.data_deps.of(1).tolist() == [0]
    assert (trace.data_deps.of(2).tolist(), trace.ctrl_deps.of(2).tolist()) == ([1], [0])
    assert (report["kept names"], report["replaced names"], report["nodes"]) == (2, 1, 3)


@pytest.mark.parametrize(
    ("name", "wire", "value", "stays"),
    [
        ("device", Wire.STRING, "cuda:3", True),
        ("device", Wire.STRING, "host17.example.org", False),
        ("device", Wire.STRING, "cpu:12345", False),
        ("dtype", Wire.STRING, "bfloat16", True),
        ("dtype", Wire.STRING, "c10::BFloat16", True),
        ("dtype", Wire.STRING, "secret16", False),
        ("involved_dim", Wire.BOOL + 1, (True, False), True),
        ("involved_dim", Wire.INT64 + 1, (1, 0), False),
        ("num_ops", Wire.DOUBLE, 2.5, True),
        ("num_ops", Wire.INT64, 0, True),
        ("is_cpu_op", Wire.BOOL, False, True),
        ("comm_tag", Wire.STRING, "secret", False),
        ("stream", Wire.DOUBLE, 7.0, False),
        ("comm_priority", Wire.STRING, "high", False),
        ("rank_of_alice", Wire.INT64, 3, False),
    ],
)
def test_what_may_stay_is_told_by_name_and_kind_of_value(name, wire, value, stays):
    node = NodeSpec(0, "a", NodeType.COMP, attributes=(Attribute(name, wire, value, "doc"),))
    clean, report = scrub(Workload((build_trace([node]),)))
    trace = clean.traces[0]
    assert report[f"attribute {name}"] == (0 if stays else 1)
    if stays:
        found = attribute_at(trace.attributes, 0, trace.strings)
        assert (found.value, found.doc) == (value, "")  # a doc string may say anything


def test_ranks_that_share_a_trace_share_the_clean_one():
    trace = build_trace([comp_trace_examples(0)])
    clean, report = scrub(Workload((trace, trace)))
    assert clean.traces[0] is clean.traces[1]
    assert report["nodes"] == 1


def test_faulty_dependencies_are_refused():
    with pytest.raises(TraceError, match="node 1 depends on node 9"):
        scrub(Workload((build_trace([comp_trace_examples(1, 9)]),)))


@tried(40)
@given(st.integers(0, 2**32 - 1))
def test_the_graph_stays_whatever_the_ids_and_names(seed):
    """Layers, widths, edges and the durations on them are those of the trace before."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 12))
    ids = rng.choice(10_000, size, replace=False).tolist()
    nodes = [
        comp_trace_examples(
            ids[n], *(ids[d] for d in range(n) if rng.random() < 0.3), us=int(rng.integers(1, 99))
        )
        for n in range(size)
    ]
    before = build_trace([nodes[n] for n in rng.permutation(size)])
    after = scrub(Workload((before,)))[0].traces[0]

    def shape(trace):
        edges, _ = dependency_edges(trace)
        layer_N, us_N = trace_layers(trace, edges), trace.duration_us_N
        ends = [(layer_N[a], us_N[a], layer_N[b], us_N[b]) for a, b in edges.T]
        return sorted(zip(layer_N.tolist(), us_N.tolist(), strict=True)), sorted(map(tuple, ends))

    assert shape(after) == shape(before)
