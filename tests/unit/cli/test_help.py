"""``layerdag train --help`` and ``sample --help`` show every setting as a flag."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from layerdag.cli.compose import compose
from layerdag.cli.flags import flag_of, settings_of_verb, usual_choices
from layerdag.cli.help import VERBS_WITH_SETTINGS, help_text
from layerdag.cli.main import main

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
GROUPS = sorted(p for p in CONFIGS.glob("*/*.yaml") if p.parent.name != "experiment")


def lines_of(text: str, flag: str) -> list[str]:
    """Return the lines that explain a flag."""
    begins = (f"  {flag} ", f"  --[no-]{flag[2:]} ")
    return [line for line in text.splitlines() if line.startswith(begins)]


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
    group = file.parent.name
    every = settings_of_verb("train", {**usual_choices("train"), group: file.stem})
    title = f"\n--{group} {file.stem}" if f"\n--{group} " in help_text("train") else f"\n{group}:"
    section = help_text("train").partition(title)[2].partition("\n\n")[0]
    for key in leaves(yaml.safe_load(file.read_text())) - {"name"}:
        (setting,) = (setting for setting in every if setting.name == f"{group}.{key}")
        (line,) = lines_of(section, flag_of(setting, every))
        assert len(line.split(maxsplit=3 if setting.kind != "bool" else 2)) > 2, line


@pytest.mark.parametrize("verb", VERBS_WITH_SETTINGS)
def test_help_lists_every_setting_of_the_verb_with_default_and_comment(verb: str) -> None:
    text, composed = help_text(verb), yaml.safe_load((CONFIGS / f"{verb}.yaml").read_text())
    for key, value in flat(composed).items():
        if key.split(".")[0] in ("defaults", "hydra"):
            continue
        every = settings_of_verb(verb, usual_choices(verb))
        (setting,) = (setting for setting in every if setting.name == key)
        line = lines_of(text, flag_of(setting, every))[0]
        words = line.split()[1 if setting.kind == "bool" else 2 :]
        assert len(words) > 1, line
        if "${" not in str(value):
            assert yaml.safe_load(words[0]) == value


def test_help_of_sample_shows_no_group_of_training() -> None:
    assert "training." not in help_text("sample")
    assert "model=" not in help_text("sample")


@pytest.mark.parametrize("verb", VERBS_WITH_SETTINGS)
def test_examples_of_the_help_compose(verb: str) -> None:
    example = help_text(verb).split("example:\n")[1].split("\n\n")[0]
    for line in example.splitlines():
        words = line.partition("  (")[0].split()
        words = words[words.index(verb) + 1 :]
        if "--resume" in words or "outputs/mine/best" in words:
            continue  # made by the first example
        if "--multirun" not in words:
            compose(verb, words)


@pytest.mark.parametrize("verb", [*VERBS_WITH_SETTINGS, "demo"])
def test_help_waits_neither_for_torch_nor_for_hydra(verb: str) -> None:
    code = (
        "import sys; from layerdag.cli.main import main\n"
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
    assert "--model reference:" in capsys.readouterr().out


def test_no_line_of_the_help_is_wider_than_a_screen() -> None:
    for verb in VERBS_WITH_SETTINGS:
        assert max(map(len, help_text(verb).splitlines())) <= 100
