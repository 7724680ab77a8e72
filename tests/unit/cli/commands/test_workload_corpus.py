"""``layerdag workload corpus`` as it is typed."""

import pytest
import yaml
from small_spaces import SMALL

from layerdag.cli.main import main


def test_a_corpus_is_written_and_the_next_command_told(tmp_path, capsys):
    space, out = tmp_path / "space.yaml", tmp_path / "llm"
    space.write_text(yaml.safe_dump(SMALL))
    assert main(["workload", "corpus", "--space", str(space), "--num", "3", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{out}: 3 training steps (train 3) of gpt3, llama3\n")
    assert f"layerdag surrogate fit {out} --out" in told
    assert {path.name for path in out.iterdir()} == {"corpus.json", "labels.csv", "graphs"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--num", "3"], "--out FOLDER"),
        (["--num", "0", "--out", "x"], "at least one point"),
        (["--space", "missing.yaml", "--out", "x"], "missing.yaml"),
    ],
)
def test_wrong_use_is_told_and_nothing_written(
    words, told, tmp_path, monkeypatch,
    capsys
) :  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["workload", "corpus", *words]) == 2
    assert told in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
