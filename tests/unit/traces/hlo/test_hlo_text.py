"""HLO as XLA's combiners and schedulers write it means the same as before they ran."""

import pytest

from layerdag.errors import DataError
from layerdag.traces.hlo.hlo_text import refuse_deep_nesting
from layerdag.traces.hlo.parser import read_program
from layerdag.traces.hlo.program import Collective, Computation

A, B = "f32[16,8]{1,0}", "f32[4]{0}"
GATHERED = "(f32[32,8]{1,0}, f32[8]{0})"
SCATTERED = "(f32[8,8]{1,0}, f32[2]{0})"
GROUP = "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true"
PAIRS = "channel_id=1, source_target_pairs={{0,1},{1,0}}"
ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
SCATTER = f"reduce-scatter(x, y), {GROUP}, dimensions={{0}}, to_apply=add"


def hlo(*lines: str, before: str = "") -> str:
    """Return a module of two arguments; the last line is its result."""
    *others, root = lines
    body = "".join(f"  {line}\n" for line in (*others, f"ROOT {root}"))
    head = f"  x = {A} parameter(0)\n  y = {B} parameter(1)\n"
    return f"HloModule m, num_partitions=2\n\n{ADD}{before}\nENTRY main {{\n{head}{body}}}\n"


def started(kind: str, operands: str, bundle: str, result: str, rest: str) -> tuple[str, str]:
    """Return a start and its end."""
    return f"s = {bundle} {kind}-start({operands}), {rest}", f"r = {result} {kind}-done(s)"


CALLED = (
    f"inner {{\n  x = {A} parameter(0)\n  y = {B} parameter(1)\n"
    f"  ROOT r = {SCATTERED} {SCATTER}\n}}\n"
)


@pytest.mark.parametrize(
    ("lines", "name", "sizes"),
    [
        ((f"r = {SCATTERED} {SCATTER}",), "reduce_scatter", [528]),
        (
            started(
                "all-gather",
                "x, y",
                f"(({A}, {B}), {GATHERED})",
                GATHERED,
                f"{GROUP}, dimensions={{0}}",
            ),
            "all_gather",
            [528],
        ),
        (
            started("all-reduce", "x, y", f"({A}, {B})", f"({A}, {B})", f"{GROUP}, to_apply=add"),
            "all_reduce",
            [528],
        ),
        (started("all-reduce", "x", A, A, f"{GROUP}, to_apply=add"), "all_reduce", [512]),
        (
            started("collective-permute", "x", f"({A}, {A}, u32[], u32[])", A, PAIRS),
            "collective_permute",
            [512],
        ),
        (
            started(
                "collective-permute", "x, y", f"(({A}, {B}), ({A}, {B}))", f"({A}, {B})", PAIRS
            ),
            "collective_permute",
            [512, 16],
        ),
        (
            started("async", "x, y", f"(({A}, {B}), {SCATTERED})", SCATTERED, "calls=inner"),
            "reduce_scatter",
            [528],
        ),
        (
            (
                f"s = (({A}), {A}) async-start(x), calls=one",
                f"u = (({A}), {A}) async-update(s)",
                f"r = {A} async-done(u)",
            ),
            "all_reduce",
            [512],
        ),
    ],
)
def test_a_joined_or_started_collective_is_one_of_its_kind(tmp_path, lines, name, sizes):
    single = f"all-reduce(x), {GROUP}, to_apply=add"
    before = f"{CALLED}\none {{\n  x = {A} parameter(0)\n  ROOT r = {A} {single}\n}}\n"
    file = tmp_path / "m.hlo"
    file.write_text(hlo(*lines, before=before))
    program = read_program(file)
    assert not program.notes
    assert all(isinstance(item, Collective) for item in program.items)
    assert [(item.name, item.num_bytes) for item in program.items] == [(name, s) for s in sizes]
    assert {(item.groups or item.pairs) for item in program.items} <= {((0, 1),), ((0, 1), (1, 0))}


def test_a_convolution_of_a_library_keeps_its_layout(tmp_path):
    call = (
        "custom-call(i, k), window={size=3x3}, dim_labels=b01f_o01i->b01f, "
        'custom_call_target="__cudnn$convForward", backend_config={"cudnn_conv_backend_config":{}}'
    )
    lines = (
        "i = f32[2,8,8,3]{3,2,1,0} constant({...})",
        "k = f32[5,3,3,3]{3,2,1,0} constant({...})",
        f"g = (f32[2,6,6,5]{{3,2,1,0}}, u8[64]{{0}}) {call}",
        "r = f32[2,6,6,5]{3,2,1,0} get-tuple-element(g), index=0",
    )
    file = tmp_path / "m.hlo"
    file.write_text(hlo(*lines))
    (item,) = read_program(file).items
    assert isinstance(item, Computation)
    assert (item.flops, item.matrix) == (2 * 360 * 27, True)
    assert item.mem_bytes == 4 * (2 * 64 * 3 + 5 * 27 + 360)


def test_a_version_that_says_nothing_is_left_out(tmp_path):
    call = 'custom-call(x), custom_call_target="Gelu", api_version=API_VERSION_UNSPECIFIED'
    file = tmp_path / "m.hlo"
    file.write_text(hlo(f"r = {A} {call}"))
    assert [note.word for note in read_program(file).notes] == ["Gelu"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"HloModule m\n" + b"(" * 2_000, "nests brackets more than 1,000 deep"),
        (b"module { a = " + b"[<" * 2_000, "nests brackets more than 1,000 deep"),
        (b"x" * (1 << 22) + b"{" * 2_000, "nests brackets more than 1,000 deep"),
        (b"module { " + b"- " * 2_000, "a thousand signs in a row"),
    ],
)
def test_what_would_overflow_a_parser_is_refused_before(text, sentence):
    with pytest.raises(DataError, match=sentence):
        refuse_deep_nesting(text, "m.hlo")


def test_many_arrows_and_iotas_are_no_nesting():
    refuse_deep_nesting(b"(a) -> b [1,2]<=[2] " * 5_000 + b"tensor<4xf32> {}" * 5_000, "m.hlo")


def test_an_exchange_of_parts_of_any_size_is_communication_and_told(tmp_path):
    sizes = ", ".join(["i"] * 4)
    lines = (
        "i = s32[2]{0} constant({1, 1})",
        f"r = {A} ragged-all-to-all(x, x, {sizes}), channel_id=1, replica_groups={{{{0,1}}}}",
    )
    file = tmp_path / "m.hlo"
    file.write_text(hlo(*lines))
    program = read_program(file)
    assert program.items == (Collective("all_to_all", 512, ((0, 1),), (), ()),)
    assert [note.word for note in program.notes] == ["ragged_all_to_all"]
