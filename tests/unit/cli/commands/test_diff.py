"""``layerdag diff``: rows, parts that do not count, what cannot be compared."""

import json
from pathlib import Path

import pytest

import layerdag as ld
from layerdag.cli.main import main
from layerdag.workloads.transformer.shapes import ModelShape


@pytest.fixture(scope="module")
def jobs(tmp_path_factory) -> tuple[str, str]:
    """A model on two ranks that share its matrices, and with one layer more."""
    folder = tmp_path_factory.mktemp("diff")
    for name, layers in (("a", 2), ("b", 3)):
        shape = ModelShape("tiny", layers, 64, 4, 128, 100)
        ld.write_workload(ld.workload(shape, tensor=2, sequence=32), folder / name)
    return str(folder / "a"), str(folder / "b")


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("graph") / "g.json"
    path.write_text(
        '{"format": "layerdag-graph-1", "name": "g", "categories": {"kind": ["a", "b"]}, '
        '"numbers": {"work": [1, 2]}, "units": {}, "edges": [[0, 1]], "edge_types": ["data"], '
        '"edge_type_names": ["data"], "conditions": {"seconds": 1.5}}'
    )
    return str(path)


def told(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    """What the verb prints, its exit code as expected."""
    assert main(["diff", *words]) == code
    return capsys.readouterr().out


def test_one_layer_more_is_told(jobs, capsys):
    out = told([*jobs], 1, capsys)
    assert "differ in operators, structure, communication" in out
    assert "only in A, " in out
    assert "norm1.#.F#: 2 -> 3 nodes" in told([*jobs, "--all"], 1, capsys)
    assert "ALL_REDUCE of 2 ranks: " in out


def test_all_rows_are_more_than_the_first_of_each_part(jobs, capsys):
    few, every = (told([*jobs, *more], 1, capsys).splitlines() for more in ([], ["--all"]))
    assert any(line.endswith(" more") for line in few)
    assert not any(line.endswith(" more") and "; " in line[-12:] for line in every)
    assert len(few) < len(every)


def test_json_is_what_the_python_door_gives(jobs, capsys):
    shown = json.loads(told([*jobs, "--json"], 1, capsys))
    found = ld.diff(*jobs)
    assert shown == json.loads(json.dumps(found.summary()))
    assert shown["differing"] == list(found.differing)
    assert not found.equal


def test_everything_can_be_left_out(jobs, capsys):
    parts = ["operators", "structure", "communication"]
    assert "differ in nothing (not counted: " in told([*jobs, "--ignore", *parts], 0, capsys)
    assert "differ in communication (not counted: " in told(
        [*jobs, "--ignore", *parts[:2]], 1, capsys
    )


def test_a_graph_equals_itself_and_differs_in_its_numbers_and_labels(graph, tmp_path, capsys):
    assert told([graph, graph], 0, capsys) == "g and g are equal: 2 nodes aligned\n"
    other = tmp_path / "h.json"
    text = Path(graph).read_text()
    other.write_text(text.replace("[1, 2]", "[1, 3]").replace("1.5", "2.5"))
    out = told([graph, str(other)], 1, capsys)
    assert "differ in operators, labels" in out
    assert "b: work 2 -> 3; 1 aligned with other figures" in out
    assert "seconds 1.5 -> 2.5" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["{a}", "{graph}"], "A graph and traces cannot be compared"),
        (["{graph}", "{graph}", "--simulate", "small"], "Graphs cannot be simulated"),
        (["{a}", "{b}", "--ignore", "tme"], "there is no part 'tme'. Did you mean 'time'?"),
        (["{a}", "{a}-nothing"], "{a}-nothing"),
    ],
)
def test_what_cannot_be_compared_is_code_two(words, sentence, jobs, graph, capsys):
    places = {"a": jobs[0], "b": jobs[1], "graph": graph}
    assert main(["diff", *(word.format(**places) for word in words)]) == 2
    assert sentence.format(**places) in capsys.readouterr().err
