"""What degrees were asked for, and which axis of the ranks takes them."""

import json
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from same_jobs import assert_same
from symbolic_jobs import GPT, LLAMA, MIXTURE, small

import layerdag as ld
from layerdag.cli.main import main
from layerdag.errors import TraceError, UsageError
from layerdag.runtime.reading import Limits
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.run import simulate
from layerdag.traces.analysis import match_communication
from layerdag.traces.chakra.workload import read_workload, write_workload
from layerdag.traces.trace import Workload
from layerdag.workloads.scaling.rescaling import Degrees, DetectedDegrees, new_sizes, scale
from layerdag.workloads.transformer.shapes import ModelShape

DATA = DetectedDegrees(("data",), (4,), (False,))
MESH = DetectedDegrees(("tensor", "pipeline", "data"), (2, 4, 8), (False, False, False))
TWO_DATA = DetectedDegrees(("data", "data"), (2, 4), (True, False))
STAGES = DetectedDegrees(("pipeline",), (4,), (False,))
ONE = DetectedDegrees((), (), ())


def asked(**words: int | None) -> Degrees:
    return Degrees.from_values(words)


def sizes(found: DetectedDegrees, **words: int | None) -> tuple[int, ...]:
    return new_sizes(asked(**words), found, "job")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({}, "Say what should change: ranks, data, tensor, layers."),
        ({"layers_now": 4}, "Say what should change"),  # says what is, not what should be
        ({"ranks": 0}, "ranks is 0; it must be a whole number, at least 1"),
        ({"data": True}, "data is True"),
        ({"tensr": 2}, r"no setting 'tensr'.*Did you mean 'tensor'"),
    ],
)
def test_what_cannot_be_asked_for_is_one_sentence(words, told):
    with pytest.raises(UsageError, match=told):
        Degrees.from_values(words)


def test_degrees_that_are_not_named_stay_but_for_data():
    assert asked(layers=8, data=None) == Degrees(layers=8)
    assert sizes(MESH, layers=8) == MESH.sizes
    assert sizes(DATA, ranks=1024) == (1024,)
    assert sizes(MESH, ranks=1024) == (2, 4, 128)
    assert sizes(MESH, tensor=4) == (4, 4, 8)
    assert sizes(MESH, tensor=4, ranks=256) == (4, 4, 16)
    assert sizes(MESH, tensor=4, data=2) == (4, 4, 2)
    tensor = DetectedDegrees(("tensor", "pipeline"), (2, 2), (False, False))
    assert sizes(tensor, ranks=16) == (8, 2)
    assert sizes(DATA, tensor=1, data=8) == (8,)
    assert sizes(ONE, tensor=1) == ()


@pytest.mark.parametrize(
    ("found", "words", "told"),
    [
        (DATA, {"tensor": 2}, "has no tensor parallelism .found data x 4."),
        (
            ONE,
            {"data": 2},
            "one rank does not tell what ranks exchange.*--nproc 2.*layerdag workload",
        ),
        (TWO_DATA, {"data": 8}, "has several axes of data parallelism"),
        (TWO_DATA, {"ranks": 64}, "--ranks does not say which degree changes.*Give --data"),
        (STAGES, {"ranks": 8}, "None of these can grow by a rule"),
        (MESH, {"ranks": 100}, "100 ranks are no multiple of the 8 ranks along the other axes"),
    ],
)
def test_what_a_trace_does_not_tell_is_refused_by_name(found, words, told):
    with pytest.raises(UsageError, match=told) as error:
        sizes(found, **words)
    assert str(error.value).startswith("job: ")


@tried(100)
@given(
    kinds=st.permutations(["tensor", "pipeline", "data"]),
    before=st.tuples(*[st.integers(1, 6)] * 3),
    ranks=st.integers(1, 400),
)
def test_the_sizes_multiply_to_the_ranks_and_only_data_changes(kinds, before, ranks):
    found = DetectedDegrees(tuple(kinds), before, (False,) * 3)
    data = kinds.index("data")
    others = prod(before) // before[data]
    if ranks % others:
        with pytest.raises(UsageError, match="no multiple"):
            sizes(found, ranks=ranks)
        return
    after = sizes(found, ranks=ranks)
    assert prod(after) == ranks
    assert [a for axis, a in enumerate(after) if axis != data] == [
        b for axis, b in enumerate(before) if axis != data
    ]


def made(shape: ModelShape, data: int, **plan: Any) -> Workload:
    """Return a job in which each data rank has four sequences."""
    return small(shape, data=data, batch=4 * data, **plan).workload()


PLANS: list[tuple[ModelShape, dict[str, Any]]] = [
    (GPT, {}),
    (LLAMA, {"zero": 1, "tensor": 2}),
    (GPT, {"zero": 2, "micro_batches": 2, "pipeline": 2}),
    (GPT, {"zero": 1, "pipeline": 4, "micro_batches": 4}),
    (LLAMA, {"zero": 3, "micro_batches": 2, "precision": "bf16-fp32-gradients"}),
    (LLAMA, {"zero": 3, "tensor": 2, "sequence_parallel": True}),
    (LLAMA, {"zero": 1, "context": 2}),
    (MIXTURE, {"zero": 2, "precision": "fp32"}),
    (GPT, {"tensor": 2, "pipeline": 2, "micro_batches": 2, "recompute": "full"}),
]


@pytest.mark.parametrize(("shape", "plan"), PLANS)
def test_more_data_ranks_are_what_the_symbolic_generator_makes_for_them(shape, plan):
    for degree in (4, 24):
        assert_same(
            scale(made(shape, 2, **plan), data=degree).workload, made(shape, degree, **plan)
        )


def test_fewer_data_ranks_are_scaled_back_where_shards_divide():
    large = made(LLAMA, 16, zero=3)
    assert_same(scale(large, data=2).workload, made(LLAMA, 2, zero=3))


def test_expert_ranks_stay_while_data_grows_around_them():
    """``data`` of the generator counts expert ranks, too; here they are an axis of their own."""
    source = made(MIXTURE, 4, expert=2, zero=1)
    assert_same(scale(source, ranks=16).workload, made(MIXTURE, 16, expert=2, zero=1))


def test_an_inference_job_has_no_degree_that_may_grow():
    with pytest.raises(UsageError, match=r"a trace of one rank does not tell"):
        scale(small(GPT, phase="prefill").workload(), ranks=8)


def test_the_result_runs_and_all_communication_matches():
    found = scale(made(GPT, 2, tensor=2, pipeline=2, micro_batches=2, zero=1), data=8)
    assert match_communication(found.workload).mismatches == ()
    assert simulate(found.workload, Cluster.preset("small"), compute="h100").makespan_ns > 0


def test_a_measured_job_of_two_ranks_runs_on_a_thousand():
    source = read_workload("data/examples/ddp_mlp")
    found = scale(source, ranks=1024)
    assert len({id(column) for column in (found.workload.traces[r].id_N for r in (0, 9))}) == 1
    assert simulate(found.workload, Cluster.preset("small")).makespan_ns > 0
    assert found.found["plan"] == [{"kind": "data", "before": 2, "after": 1024, "sharded": False}]


def test_a_plan_may_be_stated():
    source = read_workload("data/examples/ddp_mlp")
    assert scale(source, ranks=8, plan="data").found["plan"][0]["kind"] == "data"
    with pytest.raises(
        UsageError, match=r"names 'tensor,data', but .* has these axes of ranks: data x 2"
    ):
        scale(source, ranks=8, plan="tensor,data")
    with pytest.raises(UsageError, match="'dat' is unknown"):
        scale(source, ranks=8, plan="dat")


def test_what_is_called_pipeline_is_not_taken_for_data():
    with pytest.raises((UsageError, TraceError)):
        scale(small(GPT, pipeline=2).workload(), ranks=4, plan="data")


def test_groups_of_some_ranks_of_a_growing_axis_are_refused():
    """Ranks 0, 1 and 3 of four."""
    source = read_workload("data/examples/ddp_mlp")
    odd = Workload((source.traces[0],) * 4, {"0": (0, 1, 2, 3), "1": (0, 1, 3)}, "odd")
    trace = source.traces[0]
    strings = tuple("1" if text == "0" else text for text in trace.strings)
    odd = replace(odd, traces=(replace(trace, strings=strings),) * 4)
    with pytest.raises(TraceError, match=r"joins places \[0, 1, 3\] of 4"):
        scale(odd, data=8, plan="data")


@pytest.mark.parametrize(
    ("ranks", "limits", "sentence"),
    [
        (70_000, Limits(), "70,000 ranks are more than max_ranks"),
        (10**30, Limits(), "000 ranks are more than max_ranks"),
        (64, Limits(max_bytes=1000), "more than max_bytes"),
    ],
)
def test_ranks_and_bytes_are_limited(ranks, limits, sentence):
    with pytest.raises(UsageError, match=sentence):
        scale("data/examples/ddp_mlp", ranks=ranks, limits=limits)


def test_nodes_and_classes_are_told_as_they_were_before():
    """Layers are added to every rank, and what the trace had is still told."""
    source = made(LLAMA, 2)
    found = scale(source, layers=6, data=4).found
    before = sum(trace.num_nodes for trace in source.traces)
    after = sum(trace.num_nodes for trace in made(replace(LLAMA, layers=6), 4).traces)
    assert found["nodes"] == {"before": before, "after": after}
    assert found["ranks"] == {"before": 2, "after": 4}
    assert found["classes"] == [{"ranks": 2, "nodes": before // 2}]


def test_changes_are_told_by_class_with_their_sums():
    """A shard of ZeRO-3 is half as large on twice the ranks; what is sent shrinks with it."""
    source = made(LLAMA, 2, zero=3)
    scaled = scale(source, data=4)
    told = {change["what"]: change for change in scaled.found["changes"]}
    for what, name in (("operations", "num_ops"), ("communication", "comm_size")):
        old_N, new_N = (job.traces[0].integers(name)[0] for job in (source, scaled.workload))
        assert told[what]["before"] == old_N.sum()
        assert told[what]["after"] == new_N.sum()
        assert told[what]["nodes"] == (old_N != new_N).sum()
    assert told["communication"]["after"] < told["communication"]["before"]


def test_nothing_is_told_to_change_where_degrees_stay():
    found = scale("data/examples/ddp_mlp", ranks=2).found
    assert (found["changes"], found["notes"], found["layers"]) == ([], [], {})
    assert found["ranks"]["before"] == found["ranks"]["after"]


def test_notes_say_what_happened_and_nothing_else():
    plain = " ".join(scale(made(GPT, 2), data=4).found["notes"])
    assert "were dropped" in plain
    assert "Each rank keeps its batch" in plain
    assert "scaled with it" not in plain  # no operator costs more or less
    sharded = " ".join(scale(made(GPT, 2, zero=3), data=4).found["notes"])
    assert "Durations of operators whose cost changed were scaled with it." in sharded


@pytest.mark.parametrize(("zero", "sharded"), [(0, False), (1, True), (3, True)])
def test_shards_are_told_by_axis(zero, sharded):
    (axis,) = scale(made(GPT, 2, zero=zero), data=4).found["plan"]
    assert axis == {"kind": "data", "before": 2, "after": 4, "sharded": sharded}


@pytest.mark.parametrize("zero", [0, 3])
def test_two_steps_lead_where_one_does(zero):
    source = made(LLAMA, 2, zero=zero)
    steps = scale(scale(source, data=4).workload, data=16).workload
    assert_same(steps, scale(source, data=16).workload)


def test_the_source_is_left_as_it_was():
    source = made(LLAMA, 2, zero=3)
    words = [trace.attributes.word_A.copy() for trace in source.traces]
    _ = scale(source, data=8, layers=2).workload.traces[7]
    for trace, word_A in zip(source.traces, words, strict=True):
        np.testing.assert_array_equal(trace.attributes.word_A, word_A)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Return exit code and output of ``layerdag scale``."""
    code = main(["scale", *words])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.fixture(scope="module")
def written_job(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the prefix of a job of two tensor by two data ranks on disk."""
    prefix = str(tmp_path_factory.mktemp("job") / "llama")
    write_workload(small(LLAMA, tensor=2, data=2).workload(), prefix)
    return prefix


def test_the_verb_writes_what_the_call_makes(written_job, tmp_path, capsys):
    out = str(tmp_path / "larger")
    code, text = told(capsys, written_job, "--data", "3", "--layers", "5", "--out", out)
    assert code == 0
    assert "4 ranks to 6" in text
    assert "tensor: 2 to 2 ranks\ndata: 2 to 3 ranks\nlayers: 4 to 5" in text
    assert_same(read_workload(out), ld.scale(written_job, data=3, layers=5).workload)


def test_figures_of_the_verb_are_those_of_the_call(written_job, capsys):
    code, text = told(capsys, written_job, "--ranks", "16", "--plan", "tensor,data", "--json")
    assert code == 0
    found = ld.scale(written_job, ranks=16, plan="tensor,data").found
    assert json.loads(text) == {**found, "input_notes": []}
    assert found["notes"][0].startswith("All ranks have the times of the first rank of their class")


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--layers", "9", "--layers-now", "7"], 2, "no blocks of operators repeat 7 times"),
        (["--plan", "data", "--ranks", "8"], 2, "names 'data', but"),
        (["--ranks", "9"], 2, "9 ranks are no multiple of the 2 ranks along the other axes"),
        (["--ranks", "64", "--max-bytes", "1000"], 2, "more than max_bytes"),
        (["--tensor", "0"], 2, "tensor is 0; it must be a whole number, at least 1"),
        (["--tensor", "4"], 1, "leave that degree at 2"),  # a vocabulary that is split
    ],
)
def test_refusals_of_the_verb_write_nothing(words, code, sentence, written_job, tmp_path, capsys):
    found, text = told(capsys, written_job, *words, "--out", str(tmp_path / "job"))
    assert found == code
    assert sentence in text
    assert "Traceback" not in text
    assert list(tmp_path.iterdir()) == []
