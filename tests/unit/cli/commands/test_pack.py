"""``layerdag pack`` as a user calls it."""

import json
from pathlib import Path

import pytest
from raw_graphs import chain

from layerdag.cli.main import main
from layerdag.datasets.folder import load_folder
from layerdag.graph.attributed_graph import write_json
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.chakra.files import write_trace
from layerdag.traces.trace import NodeType


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "in").mkdir()
    for i, letters in enumerate(["ab", "abc", "aab", "abb", "bab", "abab", "b", "ba"]):
        write_json(tmp_path / f"in/g{i}.json", chain(f"g{i}", letters))
    (tmp_path / "in/labels.csv").write_text(
        "name,label,split\n"
        + "".join(f"g{i},{i},{'test' if i > 5 else 'train'}\n" for i in range(8))
    )
    return tmp_path / "in"


def test_a_folder_is_packed_with_the_labels_in_it(folder, capsys):
    out = folder.parent / "packed"
    (folder / "broken.json").write_text('{"nodes": [], "edges": [')
    (folder / "long.json").write_bytes((folder / "g5.json").read_bytes())
    assert main(["pack", str(folder), "--out", str(out), "--max-nodes", "4"]) == 0
    printed = capsys.readouterr().out
    assert printed == f"wrote {out}: 7 train, 0 val, 2 test; schema of 7 training graphs\n"
    data = load_folder(out, max_nodes=4)
    assert data.names["test"] == ("g6", "g7")
    assert data.graphs["test"][1].conditions["label"] == 7
    assert json.loads((out / "packed.json").read_text())["settings"]["seed"] == 0


def test_what_stands_there_is_kept_unless_it_may_be_replaced(folder, capsys):
    out = folder.parent / "packed"
    words = ["pack", str(folder), "--out", str(out), "--schema-nodes", "5", "--public-words", "all"]
    assert main(words) == 0
    assert "schema of 1 training graph\n" in capsys.readouterr().out
    assert main(words) == 2
    assert str(out) in capsys.readouterr().err
    assert main([*words, "--overwrite"]) == 0


@pytest.mark.parametrize("schema_nodes", ["5", "2000000"])
def test_the_share_of_operators_that_lose_their_name_is_told(tmp_path, capsys, schema_nodes):
    specs = [
        NodeSpec(i, name, NodeType.COMP)
        for i, name in enumerate(["aten::mm"] * 3 + ["acme::fused"])
    ]
    (tmp_path / "in").mkdir()
    rows = ["name,label,split"]
    for name in "abc":
        write_trace(build_trace(specs), tmp_path / f"in/{name}.et")
        rows.append(f"{name},1,train")
    (tmp_path / "in/labels.csv").write_text("\n".join(rows))
    words = ["pack", str(tmp_path / "in"), "--schema-nodes", schema_nodes, "--out"]
    assert main([*words, str(tmp_path / "packed")]) == 0
    assert "25.0 % of the training nodes have operators" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "all"), "--public-words", "all"]) == 0
    assert "of the training nodes" not in capsys.readouterr().err


def test_graphs_that_are_left_out_are_listed(folder, capsys):
    out = folder.parent / "packed"
    assert main(["pack", str(folder), "--out", str(out), "--max-nodes", "3"]) == 0
    assert "left out: g5: 4 nodes, more than 3" in capsys.readouterr().err
