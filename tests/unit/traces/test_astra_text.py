import pytest

from layerdag.errors import TraceError
from layerdag.traces.analysis import group_names, match_communication
from layerdag.traces.astra_text import parse_text, text_to_workload
from layerdag.traces.trace import Workload

LAYERS = """2
a -1 10 NONE 0 20 NONE 0 30 ALLREDUCE 1024 4
b -1 11 ALLGATHER 64 21 ALLTOALL 32 31 NONE 0 0
"""


def workload(first_line: str, ranks: int = 1, layers: str = LAYERS) -> Workload:
    return text_to_workload(parse_text(f"{first_line}\n{layers}".encode()), ranks)


def edges_by_name(found: Workload) -> set[tuple[str, str]]:
    trace = found.traces[0]
    names = trace.names()
    return {
        (names[int(dep)], names[row])
        for row in range(trace.num_nodes)
        for dep in trace.data_deps.of(row)
    }


def test_data_parallel_step_starts_weight_gradients_first():
    assert edges_by_name(workload("DATA")) == {
        ("a.forward", "b.forward"),
        ("b.forward", "b.forward_comm"),
        ("b.forward_comm", "b.weight_grad"),
        ("b.weight_grad", "b.input_grad"),
        ("b.input_grad", "b.input_grad_comm"),
        ("b.input_grad_comm", "a.weight_grad"),
        ("a.weight_grad", "a.weight_grad_comm"),
        ("a.weight_grad_comm", "a.update"),
    }


def test_model_parallel_step_starts_input_gradients_first():
    found = edges_by_name(workload("MODEL"))
    assert ("b.input_grad", "b.weight_grad") in found
    assert ("b.input_grad_comm", "a.weight_grad") in found


def test_times_and_sizes_are_kept():
    trace = workload("DATA").traces[0]
    durations = dict(zip(trace.names(), trace.duration_us_N.tolist(), strict=True))
    assert durations["b.input_grad"] == 21
    assert durations["a.update"] == 4
    sizes = dict(zip(trace.names(), trace.integers("comm_size")[0].tolist(), strict=True))
    assert sizes["a.weight_grad_comm"] == 1024


def test_ranks_without_groups_share_one_trace():
    found = workload("HYBRID_DATA_MODEL", 8)
    assert len({id(trace) for trace in found.traces}) == 1
    assert match_communication(found).mismatches == ()


def test_transformer_groups_split_model_and_data_collectives():
    found = workload("HYBRID_TRANSFORMER model_parallel_NPU_group: 2", 4)
    assert found.groups == {"1": (0, 1), "2": (2, 3), "3": (0, 2), "4": (1, 3)}
    names = dict(zip(found.traces[3].names(), group_names(found.traces[3])[0], strict=True))
    assert names["b.forward_comm"] == "2"
    assert names["a.weight_grad_comm"] == "4"
    assert match_communication(found).mismatches == ()


def test_checkpoints_repeat_the_forward_stretch():
    line = (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 checkpoints: 1 0 "
        "checkpoint_initiates: 1 1"
    )
    names = workload(line).traces[0].names()
    assert names.index("a.recompute") < names.index("b.recompute") < names.index("b.input_grad")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PIPELINE\n1\n", "line 1 names the parallelism 'PIPELINE'"),
        ("", "nothing"),
        ("DATA\nmany\n", "line 2 has 'many'"),
        ("DATA\n3\n" + LAYERS[2:], "announces 3 layers but 2 follow"),
        ("DATA\n1\na -1 10 NONE 0\n", "line 3 has 5 columns"),
        ("DATA\n1\n" + LAYERS.splitlines()[1].replace("ALLREDUCE", "MAGIC"), "'MAGIC'; known"),
        ("DATA\n1\n" + LAYERS.splitlines()[1].replace(" 20 ", " -20 "), "line 3 has '-20'"),
        ("DATA\n1\na -1 10 NONE 0 10 NONE 0 10 ALLREDUCE 10.5 1", "where a whole number"),
        ("DATA\n1\na -1 10 NONE 0 10 NONE 0 10 ALLREDUCE 10 1 7", "'7' behind its 12 columns"),
        ("HYBRID_TRANSFORMER model_parallel_NPU_group:\n" + LAYERS, "without its number"),
        ("HYBRID_TRANSFORMER checkpoints: 99999999 1\n" + LAYERS, "99999999 layers, but names 1"),
        ("HYBRID_TRANSFORMER mystery: 3\n" + LAYERS, "the key 'mystery', which"),
        ("HYBRID_TRANSFORMER ep: 8\n" + LAYERS, "SimAI's key 'ep' of 8"),
        ("HYBRID_TRANSFORMER pp: 2\n" + LAYERS, "SimAI's key 'pp' of 2"),
    ],
)
def test_bad_text_is_one_sentence(text, expected):
    with pytest.raises(TraceError, match=expected):
        parse_text(text.encode(), "x.txt")


def test_no_checkpoints_and_keys_of_simai_that_change_nothing_are_read():
    plain = workload("HYBRID_TRANSFORMER model_parallel_NPU_group: 2", 4)
    words = "ep: 1 pp: 1 vpp: 8 ga: 1 all_gpus: 4 checkpoints: 0 checkpoint_initiates: 0"
    found = workload(f"HYBRID_TRANSFORMER model_parallel_NPU_group: 2 {words}", 4)
    assert [edges_by_name(plain), plain.groups] == [edges_by_name(found), found.groups]
    assert not found.notes


@pytest.mark.parametrize("word", ["ga: 4", "all_gpus: 32"])
def test_keys_of_simai_that_have_no_effect_are_noted(word):
    assert [note.word for note in workload(f"HYBRID_TRANSFORMER {word}", 4).notes] == [word]


def test_ranks_must_fill_the_groups():
    with pytest.raises(TraceError, match="3 ranks cannot be split into groups of 2"):
        workload("HYBRID_TRANSFORMER model_parallel_NPU_group: 2", 3)


DLRM_LAYERS = """4
emb -1 5 ALLTOALL 64 0 ALLTOALL 32 6 NONE 0 0
bottom -1 10 NONE 0 20 NONE 0 30 ALLREDUCE 8 4
top -1 11 NONE 0 21 NONE 0 31 ALLREDUCE 16 0
last -1 12 NONE 0 22 NONE 0 32 ALLREDUCE 24 0
"""


@pytest.mark.parametrize("words", ["1", "DLRM_LAST_BOTTOM_LAYER: 1"])
@pytest.mark.parametrize("name", ["HYBRID_DLRM", "HYBRID_DLRM_ENHANCED"])
def test_dlrm_exchanges_embeddings_beside_the_bottom_network(name, words):
    found = workload(f"{name} {words}", 2, DLRM_LAYERS)
    assert edges_by_name(found) == {
        ("emb.forward", "emb.forward_comm"),
        ("emb.forward", "bottom.forward"),
        ("bottom.forward", "top.forward"),
        ("emb.forward_comm", "top.forward"),
        ("top.forward", "last.forward"),
        ("last.forward", "last.weight_grad"),
        ("last.weight_grad", "last.weight_grad_comm"),
        ("last.weight_grad", "last.input_grad"),
        ("last.input_grad", "top.weight_grad"),
        ("top.weight_grad", "top.weight_grad_comm"),
        ("top.weight_grad", "top.input_grad"),
        ("top.input_grad", "emb.input_grad_comm"),
        ("top.input_grad", "bottom.weight_grad"),
        ("bottom.weight_grad", "bottom.weight_grad_comm"),
        ("bottom.weight_grad_comm", "bottom.update"),
        ("bottom.weight_grad", "bottom.input_grad"),
        ("bottom.input_grad", "emb.weight_grad"),
    }
    assert match_communication(found).mismatches == ()


def test_inference_is_the_forward_part_alone():
    names = workload("DISTRIBUTED_INFERENCE").traces[0].names()
    assert names == ["a.forward", "b.forward", "b.forward_comm"]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("HYBRID_DLRM", "does not say which layer"),
        ("HYBRID_DLRM 1 2", "does not say which layer"),
        ("HYBRID_DLRM x", "line 1 has 'x'"),
        ("HYBRID_DLRM 3", "ends the bottom network at layer 3"),
    ],
)
def test_dlrm_needs_the_end_of_its_bottom_network(first, expected):
    with pytest.raises(TraceError, match=expected):
        parse_text(f"{first}\n{DLRM_LAYERS}".encode(), "x.txt")
