"""What would have no effect, or no meaning, is refused in a sentence before anything is written."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from json_files import PROGRAM
from raw_graphs import chain
from tiny_corpus import write_corpus

from layerdag.cli.main import main
from layerdag.graph.attributed_graph import write_json

ACCURACY = {
    "model": "m", "layers": 2, "hidden": 8, "heads": 1, "ffn": 8, "seq": 8, "global_batch": 8,
    "data": 8, "tensor": 1, "pipeline": 1, "precision": "bf16", "device": "h100", "devices": 8,
    "step_s": 0.5,
}  # fmt: skip
SOUND = {"id": 3, "name": "aten::mm", "ctrl_deps": 3}
TENSOR = {
    "id": 3,
    "name": "aten::mm",
    "ctrl_deps": 3,
    "inputs": {"values": [[7]], "types": ["Tensor(float)"], "shapes": [["4 m"]]},
}
NAMELESS = {
    "id": 3,
    "name": "aten::mm",
    "ctrl_deps": 3,
    "inputs": {"values": [], "types": [], "shapes": []},
    "outputs": {"values": [], "types": [], "shapes": []},
    "attrs": [{"type": "string", "value": "x"}],
}
LOOP = {"name": "a", "parents": ["a"], "children": []}
HOST = {"schema": "1.1.1", "nodes": [{"id": 3, "name": "aten::mm", "ctrl_deps": [7]}]}


def _file(name: str, text: str) -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        (folder / name).write_text(text)
        return str(folder / name)

    return write


def _graph(folder: Path) -> str:
    write_json(folder / "g.json", chain("g", "abc"))
    return str(folder / "g.json")


def _graphs(folder: Path) -> str:
    (folder / "graphs").mkdir()
    _graph(folder / "graphs")
    return str(folder / "graphs")


def _table(**cells: object) -> Callable[[Path], str]:
    row = {**ACCURACY, **cells}
    return _file("a.csv", f"{','.join(row)}\n{','.join(map(str, row.values()))}\n")


SWEEP = "workloads: {a: w}\nsystems: {s: s.json}\nnetworks: {n: n.yml}\n"
COMMANDS = [
    (_graph, "convert IN --to dot --scrub --out OUT/g.dot", "--scrub is for traces"),
    (_graph, "info IN --comm-group groups.json", "which has no communicator groups"),
    (_graph, "view IN --comm-group groups.json --out OUT/g.dot", "which has no communicator"),
    (_graph, "info IN --compute ", "Behind '--compute' stands an empty word"),
    (
        _file("w.json", json.dumps({"schemaVersion": "1.4", "workflow": {"tasks": [LOOP]}})),
        "convert IN --to json --out OUT/g.json", "w.json: The graph has a cycle",
    ),
    (_file("s.yml", SWEEP), "sweep IN --out OUT/rows.csv --plot OUT/bars", "another ending than"),
    (_file("s.yml", SWEEP), "sweep IN --out OUT/rows.json", "another ending than .csv"),
    (_graph, "workload stage --out OUT/w --tpsp maybe", "'maybe' is neither true nor false"),
    (_graph, "serving gpt2 --rate 4 --requests 9" + "9" * 30, "give 1 to 10,000,000 of them"),
    (_table(data=0), "accuracy IN", "data is 0; it must be at least 1"),
    (_table(step_s="0.5,7"), "accuracy IN", "line 2 has not as many cells"),
    (_file("h.json", json.dumps(HOST)), "program IN --print", "node 3 has [7] as 'ctrl_deps'"),
    (
        _file("h.json", json.dumps({"schema": "1.1.1", "nodes": [TENSOR]})),
        "program IN --print", "node 3 has [[7], \"Tensor(float)\", [\"4 m\"]] among its inputs",
    ),
    (
        _file("l.csv", "name,label\n"),
        "train --folder GRAPHS --labels IN --out OUT/p", "names no graph",
    ),
    (
        _file("h.json", json.dumps({"schema": "1.1.1", "nodes": [SOUND, SOUND]})),
        "program IN --print", "two nodes have the id 3",
    ),
    (
        _file("h.json", json.dumps({"schema": "1.1.1", "nodes": [NAMELESS]})),
        "program IN --print", "an attribute must have a name and a value",
    ),
    (
        _file("p.program.json", json.dumps(PROGRAM)), "program IN --compute h100",
        "--compute is of --step-time, which is not given",
    ),
    (
        lambda folder: str(write_corpus(folder / "c", {"train": 2})),
        "surrogate fit IN --labels l.csv --out OUT/m", "leave the label file l.csv out",
    ),
    (
        lambda folder: str(write_corpus(folder / "c", {"train": 2})),
        "release IN --labels l.csv --out OUT/m --until read", "leave the label file l.csv out",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("write", "command", "sentence"), COMMANDS, ids=[c[1] for c in COMMANDS])
def test_it_is_refused(write, command, sentence, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    places = {"IN": write(tmp_path), "GRAPHS": _graphs(tmp_path) if "GRAPHS" in command else ""}
    words = [places.get(word, word) for word in command.split(" ")]
    try:
        code = main([word.replace("OUT", f"{tmp_path / 'out'}") for word in words])
    except SystemExit as left:
        code = left.code
    told = " ".join(capsys.readouterr().err.split())
    assert code in (1, 2)
    assert sentence in told
    assert [path.name for path in (tmp_path / "out").iterdir() if path.suffix != ".private"] == []
