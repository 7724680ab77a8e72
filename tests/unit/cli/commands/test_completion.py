"""The scripts are run by the shells themselves, where these are installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from layerdag.cli.main import ROOM_OF, main


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(words: list[str], source: str, folder: Path) -> list[str]:
    """Return what bash offers for the last of some words."""
    typed = " ".join(f"'{word}'" for word in words)
    code = (
        f"{source}\nCOMP_WORDS=({typed})\nCOMP_CWORD={len(words) - 1}\n_layerdag\n"
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(
        ["bash", "-c", code], capture_output=True, text=True, check=True, cwd=folder
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_verbs_flags_and_files(tmp_path, capsys):
    source = script("bash", capsys)
    (tmp_path / "trace.0.et").write_text("")

    def offered(*words: str) -> list[str]:
        return completed(["layerdag", *words], source, tmp_path)

    assert offered("sa") == ["sample"]
    assert set(ROOM_OF) <= set(offered(""))
    assert offered("info", "--j") == ["--json"]
    assert offered("info", "tr") == ["trace.0.et"]
    assert offered("train", "--max-st") == ["--max-steps"]
    assert offered("train", "--no-con") == ["--no-console"]
    assert offered("train", "--num-tr") == ["--num-train"]
    assert offered("sample", "--best") == ["--best-of"]
    assert offered("workload", "stag") == ["stage"]
    assert offered("completion", "z") == ["zsh"]


def test_every_shell_knows_every_verb(capsys):
    for shell in ("bash", "zsh", "fish"):
        text = script(shell, capsys)
        assert all(verb in text for verb in ROOM_OF)
        assert "max-steps" in text
