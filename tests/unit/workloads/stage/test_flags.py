"""Sizes as sums of products of symbols."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from layerdag.errors import ConfigError, UsageError
from layerdag.traces.chakra.files import encode_trace, normalize, read_trace
from layerdag.traces.chakra.workload import read_workload, write_workload
from layerdag.traces.trace import Workload
from layerdag.workloads.stage.flags import StageFlags
from layerdag.workloads.stage.job import StageJob
from layerdag.workloads.stage.layout import StageLayout
from layerdag.workloads.stage.sizes import NOTHING, ONE, Dim, parse_dim, parse_dims, product

_NUMBERS = {"S": 6, "D": 10, "H": 4, "K": 2, "tp": 3, "cp": 2, "dp": 5}
_PRODUCTS = st.lists(st.sampled_from(sorted(_NUMBERS)), min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("S/cp/tp", 1),
        ("(H+2*K)/tp", Fraction(8, 3)),
        ("3*S*D/(tp*cp)", 30),
        ("1/cp", Fraction(1, 2)),
        ("S*D/S", 10),
    ],
)
def test_a_size_is_exact(text, value):
    assert parse_dim(text, {}).value(_NUMBERS) == value


def test_forms_are_equal_whatever_their_order_and_not_by_size():
    assert parse_dim("(2*K+H)/tp", {}) == parse_dim("(H+2*K)/tp", {})
    assert parse_dim("S/cp*D/tp", {}) == parse_dim("D*S/(tp*cp)", {})
    assert parse_dim("S*D/S", {}) == Dim.symbol("D")
    numbers = {"S": 8, "D": 8}
    left, right = Dim.symbol("S"), Dim.symbol("D")
    assert left.value(numbers) == right.value(numbers)
    assert left != right


def test_degrees_of_one_are_gone_and_names_mean_what_the_model_says():
    dim = parse_dim("(D*D/tp + D*K/cp)/dp", {})
    assert dim.symbols == {"D", "K", "tp", "cp", "dp"}
    assert dim.without(["dp", "cp"]) == parse_dim("D*D/tp + D*K", {})
    meaning = {"Q": parse_dim("S/cp", {})}
    assert parse_dims("Q, D", meaning) == parse_dims("S/cp, D", {})
    assert parse_dims(" ", meaning) == ()


def test_a_table_with_anything_else_is_refused():
    with pytest.raises(TypeError, match="a table has"):
        parse_dim("len(S)", {})


@given(st.tuples(_PRODUCTS, _PRODUCTS, _PRODUCTS))
def test_laws_of_arithmetic(names):
    a, b, c = (product(map(Dim.symbol, part)) for part in names)
    assert (a + b) * c == a * c + b * c
    assert (a * b) / b == a
    assert a + NOTHING == a * ONE == a
    assert (a + b).value(_NUMBERS) == a.value(_NUMBERS) + b.value(_NUMBERS)
    assert (a * b).value(_NUMBERS) == a.value(_NUMBERS) * b.value(_NUMBERS)


JOB = StageJob(
    StageFlags(
        model_type="gpt", num_stacks=2, dp=12, tp=2, pp=2, dmodel=64, dff=64, seq=16, dvocal=50
    )
)


def test_a_rank_reads_as_it_was_made(tmp_path):
    """Ranks with groups and peers of one digit and of two, which are patched into one form."""
    workload = JOB.workload()
    write_workload(workload, tmp_path / "w")
    for rank in (0, 11, 25, 47):
        assert (tmp_path / f"w.{rank}.et").read_bytes() == encode_trace(
            normalize(workload.traces[rank])
        )
    assert read_workload(tmp_path / "w").groups == workload.groups


def test_the_layout_of_stage(tmp_path):
    layout = StageLayout(tmp_path / "new", "w")
    layout.write(JOB.workload())
    assert sorted(path.name for path in layout.folder.iterdir())[:3] == [
        "w.0.et",
        "w.1.et",
        "w.10.et",
    ]
    groups = json.loads((layout.folder / "w.json").read_text())
    assert groups["1"] == list(range(12))
    assert read_trace(layout.file(3)).num_nodes == JOB.stages[0].num_nodes
    with pytest.raises(UsageError, match="--overwrite"):
        layout.write(JOB.workload())
    layout.write(StageJob(replace(JOB.flags, pp=1)).workload(), overwrite=True)
    names = {path.name for path in layout.folder.iterdir()}
    assert names == {"w.json", *(f"w.{rank}.et" for rank in range(24))}


@pytest.mark.parametrize(
    ("name", "file", "groups"),
    [
        ("w", "w.7.et", "w.json"),
        ("w.%d.et", "w.7.et", "w.json"),
        ("trace_%d.et", "trace_7.et", "trace_%d.json"),  # as STAGE names it
    ],
)
def test_names(name, file, groups):
    layout = StageLayout(Path("there"), name)
    assert layout.file(7) == Path("there") / file
    assert layout.groups == Path("there") / groups


@pytest.mark.parametrize("name", ["", "a/w", ".%d"])
def test_names_that_are_none_are_refused(tmp_path, name):
    with pytest.raises(UsageError, match="--output_name"):
        StageLayout(tmp_path, name).require_free(overwrite=False)


def test_a_workload_of_another_kind_is_refused(tmp_path):
    with pytest.raises(TypeError, match="StageJob"):
        StageLayout(tmp_path, "w").write(Workload(()))


def test_defaults_are_those_of_stage_and_only_mixtures_have_expert_ranks():
    flags = StageFlags()
    assert (flags.num_stacks, flags.dmodel, flags.dff, flags.head) == (80, 8192, 28672, 64)
    assert flags.micro_batches == 1
    assert flags.ranks == 1
    assert StageFlags(tp=2, ep=4).degrees == {"dp": 1, "tp": 8, "cp": 1}
    mixture = StageFlags(model_type="moe", tp=2, ep=4)
    assert mixture.degrees == {"dp": 1, "tp": 2, "cp": 1, "ep": 4}


@pytest.mark.parametrize(
    ("model", "mixed", "gated"),
    [
        ("llama", False, False),  # STAGE builds the gpt graph then
        ("llama", True, True),
        ("dense", True, True),
        ("gpt", True, False),
        ("moe", True, False),
    ],
)
def test_mixed_precision_chooses_the_gated_model(model, mixed, gated):
    assert StageFlags(model_type=model, mixed_precision=mixed).is_gated is gated


def test_layers_and_output_are_spread_over_stages():
    flags = StageFlags(num_stacks=6, pp=4)
    assert flags.stage_of_layer == (0, 0, 1, 1, 2, 3)
    assert flags.stage_of_output == 1
    assert StageFlags(num_stacks=6, pp=4, mixed_precision=True).stage_of_output == 3
    assert StageFlags(num_stacks=3, pp=4, mixed_precision=True).stage_of_layer == (0, 1, 2)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"model_type": "gtp"}, "none of STAGE's: dense, gpt, llama, moe"),
        ({"dp": 0}, "--dp 0 must be at least 1"),
        ({"num_stacks": 10**9}, "1,000,000,000 runs of a layer.* at most 100,000 are taken"),
        ({"micro_batch": 0}, "--micro_batch 0 must be at least 1"),
        ({"batch": 8, "micro_batch": 3}, "cannot be cut into micro-batches of 3"),
        ({"model_type": "moe", "tpsp": False}, "moe needs --tpsp true"),
        ({"model_type": "moe", "ep": 3}, "--experts 8 cannot be spread evenly over --ep 3"),
        ({"num_stacks": 3, "pp": 4}, "leaves stage 3 without a layer"),
        ({"num_stacks": 2, "pp": 4, "mixed_precision": True}, "leaves stage 2 without a layer"),
    ],
)
def test_what_stage_cannot_do_is_told(settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        StageFlags(**settings)
