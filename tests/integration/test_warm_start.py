"""``layerdag train init=...`` from the command line: start, resume, and what is refused."""

import json
from pathlib import Path

import pytest
from raw_graphs import chain

from layerdag.cli.main import main
from layerdag.graph.attributed_graph import write_json

pytestmark = pytest.mark.usefixtures("few_redraws")

QUICK = ["training.max_steps=2", "logger.sample_graphs=0"]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory) -> Path:
    """Return a folder of small flow graphs."""
    folder = tmp_path_factory.mktemp("graphs")
    for i in range(20):
        write_json(folder / f"g{i}.json", chain(f"g{i}", "ab" * (i % 6 + 1) + "c" * (i // 6)))
    return folder


@pytest.fixture(scope="module")
def first(graphs, tmp_path_factory) -> Path:
    """Return the folder of a run on them."""
    out = tmp_path_factory.mktemp("runs") / "first"
    words = ["train", "data=folder", f"data.folder={graphs}", f"out={out}", *QUICK]
    assert main([*words, "model.width=32", "model.depth=1"]) == 0
    return out


def test_a_run_starts_from_a_run_and_is_resumed(graphs, first, tmp_path, capsys):
    data = ["data=folder", f"data.folder={graphs}"]
    capsys.readouterr()
    assert main(["train", *data, f"init={first}", f"out={tmp_path / 'own'}", *QUICK]) == 0
    told = capsys.readouterr().err
    assert "layerdag: starts from first (step 2)" in told
    own = tmp_path / "own"
    assert json.loads((own / "best/config.json").read_text())["run"]["model"]["width"] == 32
    for file in (own / "best/config.json", own / "best/meta.json", own / "run.json"):
        assert str(first) not in file.read_text(), file
    assert main(["train", f"resume={own}", "training.max_steps=3"]) == 0
    meta = json.loads((own / "last/meta.json").read_text())
    assert (meta["step"], meta["origin"]["name"], meta["origin"]["step"]) == (3, "first", 2)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["model.width=128"], "model.width=128 contradicts the weights to start from"),
        (["model=reference"], "'reference' cannot start from the weights of a model 'fast'"),
        (["resume=runs/old"], "leave one of them out"),
    ],
)
def test_what_contradicts_the_weights_is_one_sentence_and_exit_code_2(
    words, sentence, graphs, first, tmp_path, capsys
):
    data = ["data=folder", f"data.folder={graphs}", f"out={tmp_path / 'own'}", *QUICK]
    assert main(["train", *data, f"init={first}", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "own/best").exists()
