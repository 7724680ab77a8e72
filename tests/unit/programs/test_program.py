"""Programs as files and as Python."""

import json
import lzma
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, strategies as st
from small_programs import every_layer, experts, images, language, nested
from torch import Tensor, nn

import layerdag as ld
from layerdag.cli.main import main
from layerdag.errors import DataError, GraphError, UsageError
from layerdag.graph.formats.program_json import call_text, program_graph
from layerdag.graph.formats.repeated_blocks import fold, unfold
from layerdag.programs.forward_program import Program
from layerdag.programs.nodes import Leaf

PROGRAMS = Path(__file__).resolve().parents[3] / "data" / "programs"


def test_a_file_holds_a_program_without_loss(tmp_path):
    for model, inputs in (language(), images()):
        found = ld.program(model, inputs)
        again = ld.program(found.save(tmp_path / "one.program.json"))
        assert again == found
        assert [n.form for n in again.nodes] == [n.form for n in found.nodes]


def broken(**changes: Any) -> dict[str, Any]:
    data = ld.program(*language(layers=1)).to_json()
    return {**json.loads(json.dumps(data)), **changes}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": "other/1"}, "is no program"),
        ({"sizes": {"q0": 3}}, "'q0' = 3 is no entry"),
        ({"sizes": {"B0": -3}}, "'B0' = -3 is no entry"),
        ({"outputs": [900]}, "are no nodes"),
        ({"extra": 1}, "unknown key 'extra'"),
        ({"nodes": [{"operator": "aten.relu.default", "inputs": [0]}]}, "node 0"),
        ({"nodes": [{"operator": "input", "arguments": [3]}]}, "node 0: a node 'input'"),
        ({"nodes": [{"operator": "input", "arguments": [{"input": ["os.x"], "dtype": "int64"}]}]},
         "node 0: 'os.x' is no size"),
        ({"nodes": [{"operator": "input", "arguments": [{"input": [2], "dtype": "text"}]}]},
         "node 0: a input has|node 0: a"),
    ],
)  # fmt: skip
def test_damaged_data_are_refused_with_the_place(changes, reason):
    with pytest.raises(DataError, match=reason):
        Program.from_json(broken(**changes))


@pytest.mark.parametrize("name", ["aten.from_file.default", "os.system.default", "aten.relu"])
def test_operators_that_a_program_may_not_call_cannot_run(name):
    data = broken()
    data["nodes"][-1] = {"operator": name, "arguments": [{"edge": "#"}], "inputs": [0]}
    (finding,) = Program.from_json(data).check()
    assert finding.rule.id == "program-runs"
    assert "is no operator that a program may call" in finding.found


def test_a_node_that_cannot_run_is_named():
    found = ld.program(*language()).resize(h0=7)
    (finding,) = found.check()
    node = found.nodes[finding.node or 0]
    assert (node.operator, node.module) == ("aten.view.default", "layers.0")


def test_a_program_without_a_loss_is_told():
    model, inputs = language()
    loss = ld.program(model, inputs)
    outputs = [at for at, node in enumerate(loss.nodes) if node.operator == "aten.linear.default"]
    logits = Program(loss.name, loss.nodes, loss.sizes, (outputs[-1],))
    kinds = {finding.rule.id for finding in logits.check()}
    assert "program-loss" in kinds
    assert {f.rule.id for f in logits.check(training=False)} == {"program-results"}


def test_an_unknown_size_names_the_nearest():
    with pytest.raises(UsageError, match=r"no size 'w2'.*Did you mean 'w0'"):
        ld.program(*language()).resize(w2=3)


def test_a_program_reads_as_python():
    lines = ld.program(*language(layers=1)).source().splitlines()
    assert lines[0] == "def Language(v0, v1):  # B0=4, n0=6, r0=90, w0=24, h0=4"
    assert (
        "    v12 = scaled_dot_product_attention(v9, v10, v11, is_causal=True)  # layers.0" in lines
    )
    compile("\n".join(lines), "program", "exec")


class Symbolic:
    """A value of which only what made it is known, by number: equal ones are equal numbers."""

    made: ClassVar[dict[Any, int]] = {}

    def __init__(self, *what: Any) -> None:
        parts = tuple(repr(part) for part in what)
        self.number = self.made.setdefault(parts, len(self.made))

    def __repr__(self) -> str:
        return f"<{self.number}>"

    def __call__(self, *given: Any, **named: Any) -> "Symbolic":
        return Symbolic(self, given, named)

    def __getattr__(self, name: str) -> "Symbolic":
        if name.startswith("__"):
            raise AttributeError(name)
        return Symbolic(self, name)

    def __getitem__(self, at: Any) -> "Symbolic":
        return Symbolic(self, "item", at)

    def __add__(self, other: Any) -> "Symbolic":
        return Symbolic(self, "+", other)

    def __mul__(self, other: Any) -> "Symbolic":
        return Symbolic(self, "*", other)

    def __floordiv__(self, other: Any) -> "Symbolic":
        return Symbolic(self, "//", other)


class Names(dict[str, Any]):
    """Gives every name that Python itself lacks."""

    def __missing__(self, name: str) -> Any:
        return range if name == "range" else Symbolic("name", name)


def result_of(source: str) -> str:
    """Return what a program's source computes, as a term."""
    body = [line[4:] for line in source.splitlines()[1:]]
    names = Names()
    exec("\n".join(body[:-1]) + f"\nresult = ({body[-1].removeprefix('return ')},)", names)
    return repr(names["result"])


@pytest.mark.parametrize("make", [lambda: language(layers=3), nested, experts, every_layer])
def test_loops_compute_what_the_calls_one_by_one_do(make):
    found = ld.program(*make())
    plain = replace(found, nodes=tuple(replace(node, module="") for node in found.nodes))
    assert "for " not in plain.source()
    assert result_of(found.source()) == result_of(plain.source())


def test_equal_blocks_are_one_loop_and_stand_in_a_file_once(tmp_path):
    found = ld.program(*language(layers=5))
    lines = found.source().splitlines()
    assert [line for line in lines if "for " in line] == [
        "    for block in [f'layers.{i}' for i in range(5)]:"
    ]
    (block,) = (entry for entry in found.to_json()["nodes"] if "block" in entry)
    assert block["modules"] == [f"layers.{at}" for at in range(5)]
    small = ld.program(*language(layers=1)).save(tmp_path / "small.program.json")
    deep = found.save(tmp_path / "deep.program.json")
    assert deep.stat().st_size < 1.5 * small.stat().st_size
    assert Program.load(deep) == found


def test_blocks_in_blocks_and_those_that_read_their_own_part_are_folded():
    (outer,) = (e for e in ld.program(*nested()).to_json()["nodes"] if "block" in e)
    assert any("block" in entry for entry in outer["block"])
    (parts,) = (e for e in ld.program(*experts()).to_json()["nodes"] if "block" in e)
    assert len(parts["modules"]) == 4
    (first, second), *_ = parts["next"]
    assert second == first + 1


def test_results_of_every_layer_forbid_a_loop_but_not_a_block():
    found = ld.program(*every_layer())
    assert "for " not in found.source()
    assert any("block" in entry for entry in found.to_json()["nodes"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"modules": ["layers.0"]}, "in 1 modules; it needs one in two"),
        ({"block": []}, "has 0 nodes"),
        ({"next": [[2]]}, r"'next' of the block at node 4 holds \[2\]"),
        ({"next": [[900, 5]]}, r"holds \[900, 5\]"),
        ({"next": [[2, 900]]}, r"holds \[2, 900\]"),
        ({"count": 5}, "count"),
        ({"next": [[2, 5], [2, 6]]}, "names a position twice"),
        ({"modules": ["layers.0", "x" * 60_000_000]}, "more than 100,000,000 characters"),
        ({"modules": [f"layers.{at}" for at in range(20_000)]}, "at most 100,000 are read"),
    ],
)
def test_damaged_blocks_are_refused(changes, reason):
    data = ld.program(*language(layers=3)).to_json()
    at = next(at for at, entry in enumerate(data["nodes"]) if "block" in entry)
    data["nodes"][at] = {**data["nodes"][at], **changes}
    with pytest.raises(DataError, match=reason):
        Program.from_json(data)
    with pytest.raises(GraphError, match=reason):
        program_graph(data, "damaged")


@given(st.data())
def test_what_is_folded_unfolds_to_the_same_text(data):
    numbers = st.sampled_from([1, 1.0, True, 0.0, -0.0])
    nodes = [{"operator": "input", "arguments": []}] * 2
    for at in range(2, data.draw(st.integers(3, 14))):
        inputs = data.draw(st.lists(st.integers(max(0, at - 3), at - 1), min_size=1, max_size=2))
        module = f"blocks.{(at - 2) // data.draw(st.sampled_from([1, 1, 2]))}"
        arguments = [data.draw(numbers)] if data.draw(st.booleans()) else []
        nodes.append({"operator": "a", "arguments": arguments, "inputs": inputs, "module": module})
    assert json.dumps(unfold(fold(nodes))) == json.dumps(nodes)


@pytest.mark.parametrize("file", sorted(PROGRAMS.glob("*.jsonl.xz")), ids=lambda file: file.name)
def test_programs_of_the_corpus_unfold_to_the_same_text(file):
    shorter = 0
    with lzma.open(file, "rt") as lines:
        for line in islice(lines, 0, None, 10):
            nodes = unfold(json.loads(line)["nodes"])
            folded = fold(nodes)
            assert json.dumps(unfold(folded)) == json.dumps(nodes)
            shorter += len(folded) < len(nodes)
    assert shorter


def test_a_module_of_many_nodes_is_looked_through_once():
    nodes = [{"operator": "a", "arguments": [], "module": f"0.m{at}"} for at in range(20_000)]
    assert fold(nodes) == nodes  # minutes, if each node looked for the end of its module


def test_names_that_are_no_identifiers_leave_a_loop_python():
    found = ld.program(*language(layers=2))
    renamed = [replace(n, names=tuple(f"{x}'{{y}}" for x in n.names)) for n in found.nodes]
    source = replace(found, nodes=tuple(renamed), order=()).source()
    assert "for block in" in source
    compile(source, "program", "exec")


@pytest.mark.parametrize("change", [{"dtype": "bfloat16"}, {"trained": False}])
def test_programs_whose_parameters_differ_are_told_apart(tmp_path, change):
    one = ld.program(*language(layers=1))
    at = next(at for at, node in enumerate(one.nodes) if node.leaves)
    leaf = replace(one.nodes[at].leaves[0], **change)
    given = tuple(leaf if isinstance(part, Leaf) else part for part in one.nodes[at].arguments)
    nodes = (*one.nodes[:at], replace(one.nodes[at], arguments=given), *one.nodes[at + 1 :])
    paths = [one.save(tmp_path / "a.program.json")]
    paths.append(replace(one, nodes=nodes).save(tmp_path / "b.program.json"))
    assert main(["diff", *map(str, paths)]) == 1


def test_it_fits_one_line():
    model, inputs = language(layers=1)
    assert repr(ld.program(model, inputs)) == (
        "Program('Language', 18 calls, B0=4, n0=6, r0=90, w0=24, h0=4)"
    )


def test_positions_beyond_the_rows_of_their_embedding_are_told():
    """Fake tensors cannot see it; a real run would stop with an index error."""

    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Embedding(16, 8)

        def forward(self, x: Tensor) -> Tensor:
            return (x + self.rows(torch.arange(x.shape[1]))).sum()

    found = ld.program(Positions(), [torch.zeros(4, 12, 8)])
    assert not found.check()
    (finding,) = found.resize(n0=17).check()
    assert finding.rule.id == "program-index"
    assert "reach 16, the embedding has 16 rows" in finding.found


def test_an_attribute_that_is_only_named_like_calls_is_shown_as_it_is(tmp_path, capsys):
    path = tmp_path / "own.dot"
    path.write_text('digraph { a [call="aten.mm x"]; b [call="my call"]; a -> b }')
    assert main(["info", str(path)]) == 0
    assert "aten.mm x 1, my call 1" in capsys.readouterr().out
    assert main(["view", str(path), "--out", str(tmp_path / "own.svg")]) == 0
    assert "my call" in (tmp_path / "own.svg").read_text()


def test_info_and_diff_tell_calls_in_short(tmp_path, capsys):
    one = ld.program(*language(layers=1))
    paths = [
        str(p.save(tmp_path / f"{p.name}.program.json"))
        for p in (one, replace(one.deepen(2), name="Deep"))
    ]
    assert main(["info", paths[0]]) == 0
    assert "operators     linear 3, getitem 3, " in capsys.readouterr().out
    assert main(["diff", *paths]) == 1
    told = capsys.readouterr().out
    assert "linear(_, parameter[a0.-1*3, a0.-1] float32, parameter[p0.0] float32), " in told
    assert "{" not in told


@pytest.mark.parametrize("call", ["", "aten.add [", "aten.add {}", 'aten.add {"arguments": [{}]}'])
def test_words_that_are_no_calls_stay_as_they_are(call):
    assert call_text(call, "h0") == f"{call} h0"
