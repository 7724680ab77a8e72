import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from layerdag.cli import main
from layerdag.cli.settings import VERBS_WITH_SETTINGS, compose, help_text

CONFIGS = Path(__file__).resolve().parents[4] / "configs"
GROUPS = sorted(p for p in CONFIGS.glob("*/*.yaml") if p.parent.name != "experiment")


def lines_of(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"  {name} ")]


def leaves(settings: dict[str, object], prefix: str = "") -> set[str]:
    """Return the dotted name of every setting."""
    found = set()
    for key, value in settings.items():
        inner = leaves(value, f"{prefix}{key}.") if isinstance(value, dict) and value else set()
        found |= inner or {f"{prefix}{key}"}
    return found


def flat(settings: dict[str, object], prefix: str = "") -> dict[str, object]:
    """Return every setting with its value by its dotted name."""
    found: dict[str, object] = {}
    for key, value in settings.items():
        inner = flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else None
        found |= {f"{prefix}{key}": value} if inner is None else inner
    return found


@pytest.mark.parametrize("file", GROUPS, ids=lambda p: f"{p.parent.name}={p.stem}")
def test_help_of_train_lists_every_setting_of_every_choice_with_a_comment(file: Path) -> None:
    text = help_text("train")
    for key in leaves(yaml.safe_load(file.read_text())) - {"name"}:
        shown = lines_of(text, f"{file.parent.name}.{key}")
        assert shown, key
        assert all(len(line.split(maxsplit=2)) == 3 for line in shown), shown


@pytest.mark.parametrize("verb", VERBS_WITH_SETTINGS)
def test_help_lists_every_setting_of_the_verb_with_default_and_comment(verb: str) -> None:
    text, composed = help_text(verb), yaml.safe_load((CONFIGS / f"{verb}.yaml").read_text())
    for key, value in flat(composed).items():
        if key.split(".")[0] in ("defaults", "hydra"):
            continue
        (line,) = lines_of(text, key)
        words = line.split()
        assert len(words) > 2, line
        if "${" not in str(value):
            assert yaml.safe_load(words[1]) == value


def test_help_of_sample_shows_no_group_of_training() -> None:
    assert "training." not in help_text("sample")
    assert "model=" not in help_text("sample")


@pytest.mark.parametrize("verb", VERBS_WITH_SETTINGS)
def test_examples_of_the_help_compose(verb: str) -> None:
    example = help_text(verb).split("example:\n")[1].split("\n\n")[0]
    for line in example.splitlines():
        words = line.split()[2 + 3 * ("torchrun" in line) :]
        if "--multirun" not in words:
            compose(verb, words)


@pytest.mark.parametrize("verb", [*VERBS_WITH_SETTINGS, "demo"])
def test_help_waits_neither_for_torch_nor_for_hydra(verb: str) -> None:
    code = (
        "import sys; from layerdag.cli import main\n"
        f"try: assert main([{verb!r}, '--help']) == 0\n"
        "except SystemExit as end: assert not end.code\n"
        "slow = {'torch', 'hydra', 'omegaconf', 'numpy', 'sklearn'} & set(sys.modules)\n"
        "print(sorted(slow))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "example:\n  layerdag " in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_stands_beside_other_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "model=reference", "-h"]) == 0
    assert "model=reference:" in capsys.readouterr().out
