"""Programs as files and as Python."""

import json
from typing import Any

import pytest
import torch
from small_programs import images, language
from torch import Tensor, nn

import layerdag as ld
from layerdag.errors import DataError, UsageError
from layerdag.programs.forward_program import Program


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
