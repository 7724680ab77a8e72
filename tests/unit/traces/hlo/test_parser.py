"""Trip counts against loops that run, and tables of devices."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.errors import DataError
from layerdag.traces.hlo import parser as reading
from layerdag.traces.hlo.operations import _turns
from layerdag.traces.hlo.parser import begins_program, read_program
from layerdag.traces.hlo.program import Collective, Computation, ValueType

COMPARISONS = {
    "LT": lambda i, limit: i < limit,
    "LE": lambda i, limit: i <= limit,
    "GT": lambda i, limit: i > limit,
    "GE": lambda i, limit: i >= limit,
    "NE": lambda i, limit: i != limit,
}
MOST = 200


def counted(begin: int, limit: int, step: int, direction: str) -> int | None:
    """Run the loop; None if it does not end soon."""
    turns = 0
    while COMPARISONS[direction](begin, limit):
        begin, turns = begin + step, turns + 1
        if turns > MOST:
            return None
    return turns


@tried(300)
@given(
    begin=st.integers(-40, 40),
    limit=st.integers(-40, 40),
    step=st.integers(-5, 5).filter(bool),
    direction=st.sampled_from(sorted(COMPARISONS)),
)
def test_a_trip_count_is_what_running_the_loop_counts(begin, limit, step, direction):
    text = f"#stablehlo<comparison_direction {direction}>"
    assert _turns(begin, limit, step, text) == counted(begin, limit, step, direction)


def test_another_comparison_has_no_trip_count():
    assert _turns(0, 9, 1, "#stablehlo<comparison_direction EQ>") is None


@pytest.mark.parametrize(
    ("element", "shape", "num_bytes"),
    [
        ("f32", (3, 5), 60),
        ("bf16", (3, 5), 30),
        ("f8E4M3FN", (3, 5), 15),
        ("i4", (3,), 2),  # twelve bits
        ("i1", (3, 5), 15),  # a Boolean is a byte in memory
        ("complex<f32>", (2,), 16),
        ("complex<f64>", (2,), 32),
        ("!quant.uniform<i8:f32, 5.000000e-01>", (3,), 3),
        ("index", (2,), 16),
        ("f64", (), 8),  # a scalar
        ("ui64", (3, 5), 120),
        ("f32", (0, 7), 0),
    ],
)
def test_values_take_the_bytes_of_their_elements(element, shape, num_bytes):
    assert ValueType(shape, element).num_bytes == num_bytes


LOOP = """
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {{
  %begin = stablehlo.constant dense<{begin}> : tensor<i32>
  %limit = stablehlo.constant dense<{limit}> : tensor<i32>
  %i, %y = stablehlo.while(%c = %begin, %v = %x) : tensor<i32>, tensor<8xf32>
  cond {{
    %t = stablehlo.compare {direction}, %c, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  }} do {{
    %step = stablehlo.constant dense<{step}> : tensor<i32>
    %n = stablehlo.{change} %c, %step : tensor<i32>
    %w = stablehlo.tanh %v : tensor<8xf32>
    stablehlo.return %n, %w : tensor<i32>, tensor<8xf32>
  }}
  return %y : tensor<8xf32>
}}
"""


@pytest.fixture
def programs(repository: Path) -> Path:
    return repository / "data" / "examples" / "programs"


def names(file: Path) -> list[str]:
    return [item.name for item in read_program(file).items]


@pytest.mark.parametrize(
    ("begin", "limit", "direction", "change", "step", "turns"),
    [
        (0, 5, "LT", "add", 1, 5),
        (0, 5, "LE", "add", 1, 6),
        (1, 8, "LT", "add", 3, 3),
        (0, 5, "GT", "add", 1, 0),
        (5, 0, "GT", "subtract", 1, 5),
        (5, 0, "GE", "subtract", 2, 3),
        (0, 6, "NE", "add", 2, 3),
        (7, 5, "LT", "add", 1, 0),
    ],
)
def test_a_loop_runs_as_often_as_its_constants_say(
    written, begin, limit, direction, change, step, turns
):
    text = LOOP.format(begin=begin, limit=limit, direction=direction, change=change, step=step)
    assert names(written(text)).count("tanh") == turns


def test_each_turn_of_a_loop_waits_for_the_one_before(written):
    text = LOOP.format(begin=0, limit=3, direction="LT", change="add", step=1)
    items = read_program(written(text)).items
    turns = [index for index, item in enumerate(items) if item.name == "tanh"]
    assert [items[index].parents for index in turns] == [(), *((index,) for index in turns[:-1])]


@pytest.mark.parametrize(
    ("begin", "limit", "direction", "change", "step"),
    [(0, 5, "NE", "add", 2), (0, 5, "LT", "subtract", 1), (0, 5, "LT", "multiply", 2)],
)
def test_a_loop_without_a_trip_count_is_refused(written, begin, limit, direction, change, step):
    text = LOOP.format(begin=begin, limit=limit, direction=direction, change=change, step=step)
    with pytest.raises(DataError, match="trip count does not follow from constants"):
        read_program(written(text))


def test_calls_are_taken_apart_where_they_stand(programs):
    program = read_program(programs / "mlp.mlir")
    assert (program.name, program.devices) == ("mlp_step", 4)
    assert names(programs / "mlp.mlir") == [
        *("dot_general", "broadcast_in_dim", "maximum", "subtract", "dot_general"),
        *("all_reduce", "broadcast_in_dim", "multiply", "subtract"),
    ]
    reduced = program.items[5]
    assert isinstance(reduced, Collective)
    assert (reduced.groups, reduced.num_bytes) == (((0, 1), (2, 3)), 4 * 256 * 128)
    assert reduced.parents == (4,)


def test_all_notations_of_groups_mean_the_same_devices(programs):
    program = read_program(programs / "loop.hlo")
    groups = [item.groups for item in program.items if item.name == "all_reduce"]
    assert groups == [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 1), (2, 3))]
    moved = [item for item in program.items if isinstance(item, Collective) and item.pairs]
    assert [item.pairs for item in moved] == [((0, 1), (1, 2), (2, 3), (3, 0))] * 5
    assert program.devices == 4


def test_a_fusion_computes_all_and_moves_its_own_values_only(programs):
    fusion = read_program(programs / "loop.hlo").items[0]
    assert isinstance(fusion, Computation)
    assert (fusion.name, fusion.flops) == ("fusion", 2 * 8192 * 16)
    assert fusion.mem_bytes == 3 * 4 * 8192 * 16


def test_replicas_and_partitions_become_ranks(written):
    body = """func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {{
      %r = "stablehlo.all_reduce"(%x) <{{
        replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>{more}
      }}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32>
      }}) : (tensor<8xf32>) -> tensor<8xf32>
      return %r : tensor<8xf32>
    }}"""
    grid = "mhlo.num_replicas = 2 : i32, mhlo.num_partitions = 3 : i32"
    channel = ", channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>"
    for more, expected in (
        ("", ((0, 3), (1, 4), (2, 5))),
        (channel, ((0, 1, 2, 3, 4, 5),)),
        (f"{channel}, use_global_device_ids", ((0, 1),)),
    ):
        (item,) = read_program(written(body.format(more=more), grid)).items
        assert isinstance(item, Collective)
        assert item.groups == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("module { nonsense }", "cannot be parsed as StableHLO"),
        ("HloModule x\nENTRY %m { ROOT %r = f33[] parameter(0) }", "cannot be parsed as HLO"),
        ("module {}", "holds no function"),
        ("hello", "begins like neither"),
        (
            "module { func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {\n"
            "%b = stablehlo.tanh %a : tensor<?xf32>\nreturn %b : tensor<?xf32>\n} }",
            "has a dynamic shape",
        ),
        (
            "module { func.func @main() { func.call @main() : () -> ()\nreturn\n} }",
            "nests calls and loops more than 100 deep",
        ),
    ],
)
def test_what_is_no_program_is_one_sentence(tmp_path, text, sentence):
    file = tmp_path / "bad.mlir"
    file.write_text(text)
    with pytest.raises(DataError, match=sentence) as caught:
        read_program(file)
    assert "\n" not in str(caught.value).strip()


LAUGHS = "\n".join(
    f"func.func private @f{i + 1}() {{\n"
    f"call @f{i}() : () -> ()\ncall @f{i}() : () -> ()\nreturn\n}}"
    for i in range(40)
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            LOOP.format(begin=0, limit=2_000_000_000, direction="LT", change="add", step=1),
            "has [0-9,]{13} operations when .* unrolled; at most 2,000,000",
        ),
        (
            "func.func @main() {\ncall @f40() : () -> ()\nreturn\n}\n"
            f"func.func private @f0() {{ return }}\n{LAUGHS}",
            "has 4,398,046,511,103 operations when its calls are inlined",
        ),
        ("func.func private @main()", "the function 'main' without a body"),
        (
            'func.func @main(%a: tensor<4x!foo.bar>) { %r = "foo.tanh"(%a) : (tensor<4x!foo.bar>)'
            " -> tensor<4x!foo.bar>\nreturn }",
            "element type '!foo.bar', whose size is unknown",
        ),
        (
            'func.func @main(%a: tensor<4xf32>) { "foo.all_reduce"(%a) : (tensor<4xf32>) -> ()'
            "\nreturn }",
            "without what StableHLO demands",
        ),
    ],
)
def test_what_cannot_be_unrolled_or_counted_is_one_sentence(written, text, sentence):
    with pytest.raises(DataError, match=sentence):
        read_program(written(text))


def test_a_number_of_devices_that_is_none_is_one_sentence(written):
    text = written("func.func @main() { return }", 'mhlo.num_replicas = "x"')
    with pytest.raises(DataError, match="no positive whole number"):
        read_program(text)


def test_without_jaxlib_the_extra_is_named(programs, monkeypatch):
    def missing(name: str) -> object:
        raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(reading.importlib, "import_module", missing)
    with pytest.raises(DataError, match=r"pip install 'layerdag\[hlo\]'"):
        read_program(programs / "mlp.mlir")


def test_programs_are_told_by_how_they_begin(programs, repository):
    assert begins_program((programs / "mlp.mlir").read_bytes())
    assert begins_program((programs / "loop.hlo").read_bytes())
    assert not begins_program((repository / "README.md").read_bytes())
    assert not begins_program((repository / "data" / "examples" / "ddp_mlp.0.et").read_bytes())
