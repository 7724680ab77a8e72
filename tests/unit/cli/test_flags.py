"""Flags and conditions as Hydra takes them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from raw_graphs import chain
from tiny_checkpoints import chain_checkpoint

from layerdag.cli.compose import compose, hydra_overrides
from layerdag.cli.flags import (
    VERBS_WITH_SETTINGS,
    Grammar,
    flag_of,
    help_text,
    settings_of_verb,
    usual_choices,
    value_in,
)
from layerdag.cli.main import main
from layerdag.errors import ConfigError, UsageError
from layerdag.graph.attributed_graph import write_json


@pytest.mark.parametrize(
    ("words", "overrides"),
    [
        ("--max-steps 100", "training.max_steps=100"),
        ("--max-steps=100 seed=3", "training.max_steps=100 seed=3"),
        ("--training.max-steps 100", "training.max_steps=100"),
        ("--training.optimizer.learning-rate 1e-3", "training.optimizer.learning_rate=1e-3"),
        ("--learning-rate 1e-3", "training.optimizer.learning_rate=1e-3"),
        ("--privacy.learning-rate 2", "privacy.learning_rate=2"),
        ("--width 64 --depth 2", "model.width=64 model.depth=2"),
        ("--model reference --node.width 8", "model=reference model.node.width=8"),
        ("--model=reference --budget 9", "model=reference model.budget=9"),
        ("--no-console --overwrite", "logger.console=false overwrite=true"),
        ("--dry-run=false", "dry_run=false"),
        ("--dry-run true --seed 1", "dry_run=true seed=1"),
        ("--predict-out-degree", "model.predict_out_degree=true"),
        ("--families gpt,bert", "data.families=[gpt,bert]"),
        ("--data latent_preferential --rho .1", "data=latent_preferential data.rho=.1"),
        ("--data tpu_tile --folder x", "data=tpu_tile data.folder='x'"),
        ("--experiment ablation/full --out x", "experiment=ablation/full out='x'"),
        ("--conditions label,family", "conditions=[label,family]"),
        ("--multirun --seed 0,1", "--multirun seed=0,1"),
        ("--multirun --model fast,reference", "--multirun model=fast,reference"),
        ("--cfg job -p training --max-steps 2", "--cfg job -p training training.max_steps=2"),
        ("--epsilon inf --delta 1e-5", "privacy.epsilon=inf privacy.delta=1e-5"),
        ("--init null", "init=null"),
    ],
)
def test_flags_of_train_are_overrides(words, overrides):
    assert hydra_overrides("train", words.split()) == overrides.split()
    # What is an override already stays as it is.
    assert hydra_overrides("train", overrides.split()) == overrides.split()


@pytest.mark.parametrize(
    ("words", "overrides"),
    [
        ("--num 4 --guidance -1.5", "num=4 guidance=-1.5"),
        ("--checkpoint pretrained family=gpt strategy=ddp", "checkpoint='pretrained' "
         "++conditions.family=gpt ++conditions.strategy=ddp"),
        ("--family gpt --num-nodes=40", "++conditions.family=gpt ++conditions.num_nodes=40"),
        ("conditions.family=gpt", "++conditions.family=gpt"),
        ("--conditions.family gpt", "++conditions.family=gpt"),
        ("+conditions.family=gpt", "+conditions.family=gpt"),
        ("--checkpoint public data=64 --tensor 8", "checkpoint='public' "
         "plan.data=64 plan.tensor=8"),
        ("--label 0.5 label=0.2", "label=0.5 label=0.2"),
    ],
)  # fmt: skip
def test_flags_and_conditions_of_sample_are_overrides(words, overrides):
    assert hydra_overrides("sample", words.split()) == overrides.split()


def test_the_three_ways_to_ask_for_a_condition_are_one():
    asked = [["family=gpt"], ["--family", "gpt"], ["+conditions.family=gpt"]]
    assert [compose("sample", words).conditions.family for words in asked] == ["gpt"] * 3


def test_a_name_with_spaces_and_quotes_stays_what_it_is():
    name = "it's [all], here: {50 %}"
    assert compose("train", ["--out", name]).out == name
    assert compose("train", ["--data=folder", f"--folder={name}"]).data.folder == name


@pytest.mark.parametrize(
    ("verb", "words", "sentence"),
    [
        ("train", "--max-stps 5", "does not take '--max-stps'. Did you mean '--max-steps'"),
        ("train", "--folders x", "Did you mean '--folder'"),
        ("train", "--dropout 1", "write --model.encoder.dropout or --model.cond"),
        ("train", "--model reference --steps 1", "--model.node.steps or --model.edge.steps"),
        ("train", "--num-train 5", "setting of data=latent_preferential: add --data latent_pre"),
        ("train", "--model fsat", "no model=fsat. Did you mean 'fast'"),
        ("train", "--seed", "'--seed' needs a value: --seed N"),
        ("train", "--out --overwrite", "'--out' needs a value: --out PATH"),
        ("train", "--no-seed", "'--no-seed' is for settings that are .*; 'seed' takes N"),
        ("train", "--no-console=3", "'--no-console' takes no value"),
        ("train", "--family gpt", "does not take '--family'"),
        ("sample", "--famly gpt", "Did you mean '--family'"),
        ("sample", "famly=gpt", "'famly' is no setting and no .* .* mean 'family'.*num_nodes"),
        ("sample", "strategy=ddp", "Of programs ask for a plan, such as data=4"),
        ("sample", "--world-size 4", "Of programs ask for ranks=4, or a plan"),
        ("sample", "--nmu 3", "Did you mean '--num'"),
    ],
)  # fmt: skip
def test_a_wrong_flag_is_told_what_was_meant(verb, words, sentence):
    with pytest.raises(UsageError, match=sentence):
        compose(verb, words.split())


def test_a_folder_alone_says_what_it_is(tmp_path):
    write_json(tmp_path / "g.json", chain("g", "aba"))
    for words in ([f"data.folder={tmp_path}"], ["--folder", str(tmp_path)]):
        found = compose("train", [*words, "--held-out", ".3"]).data
        assert (found.name, found.folder, found.held_out) == ("folder", str(tmp_path), 0.3)
    (tmp_path / "index.jsonl").write_text("")
    assert compose("train", [f"data.folder={tmp_path}"]).data.name == "corpus"
    assert compose("train", ["--folder", str(tmp_path / "none")]).data.name == "folder"


def test_flags_of_a_resumed_run_are_those_of_its_model(tmp_path):
    (tmp_path / "last").mkdir()
    kept = {"run": {"training": {"max_steps": 9}, "model": {"name": "reference"}}}
    (tmp_path / "last" / "config.json").write_text(json.dumps(kept))
    words = hydra_overrides("train", ["--resume", str(tmp_path), "--budget", "7"])
    assert words == [f"resume='{tmp_path}'", "model.budget=7"]


def test_conditions_are_those_of_the_checkpoint_that_is_named(tmp_path):
    folder = str(chain_checkpoint(tmp_path).path)
    with pytest.raises(ConfigError, match=r"no condition of the checkpoint.*Its conditions: label"):
        hydra_overrides("sample", [f"checkpoint={folder}", "family=gpt"])


def test_no_checkpoint_is_read_where_every_word_is_a_setting():
    def read() -> list[str]:
        raise AssertionError

    grammar = Grammar("sample", settings_of_verb("sample", {}), read)
    assert grammar.overrides(["--num", "3", "seed=1"]) == ["num=3", "seed=1"]


@pytest.mark.parametrize(
    ("words", "found"),
    [("--out x", "x"), ("--out=x out=y", "y"), ("out='a b'", "a b"), ("+out=x", "x"), ("-m", None)],
)
def test_the_last_value_of_a_name_counts(words, found):
    assert value_in(words.split() if "'" not in words else [words], "out") == found


def test_every_setting_of_every_choice_has_a_flag_that_means_it():
    from layerdag.cli.flags import flag_of, options_of

    for verb, groups in (("train", ("data", "model")), ("sample", ())):
        choices = [{g: o} for g in groups for o in options_of(g)] or [{}]
        for chosen in choices:
            settings = settings_of_verb(verb, {**usual_choices(verb), **chosen})
            grammar = Grammar(verb, settings)
            for setting in settings:
                value = [] if setting.kind == "bool" else ["1"]
                (word,) = grammar.overrides([flag_of(setting, settings), *value])
                assert word.partition("=")[0] == setting.name


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
def test_help_of_train_lists_every_setting_of_every_choice_with_a_comment(file):
    group = file.parent.name
    every = settings_of_verb("train", {**usual_choices("train"), group: file.stem})
    title = f"\n--{group} {file.stem}" if f"\n--{group} " in help_text("train") else f"\n{group}:"
    section = help_text("train").partition(title)[2].partition("\n\n")[0]
    for key in leaves(yaml.safe_load(file.read_text())) - {"name"}:
        (setting,) = (setting for setting in every if setting.name == f"{group}.{key}")
        (line,) = lines_of(section, flag_of(setting, every))
        assert len(line.split(maxsplit=3 if setting.kind != "bool" else 2)) > 2, line


@pytest.mark.parametrize("verb", VERBS_WITH_SETTINGS)
def test_help_lists_every_setting_of_the_verb_with_default_and_comment(verb):
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


def test_help_of_sample_shows_no_group_of_training():
    assert "training." not in help_text("sample")
    assert "model=" not in help_text("sample")


@pytest.mark.parametrize("verb", VERBS_WITH_SETTINGS)
def test_examples_of_the_help_compose(verb):
    example = help_text(verb).split("example:\n")[1].split("\n\n")[0]
    for line in example.splitlines():
        words = line.partition("  (")[0].split()
        words = words[words.index(verb) + 1 :]
        if "--resume" in words or "outputs/mine/best" in words:
            continue  # made by the first example
        if "--multirun" not in words:
            compose(verb, words)


@pytest.mark.parametrize("verb", [*VERBS_WITH_SETTINGS, "demo"])
def test_help_waits_neither_for_torch_nor_for_hydra(verb):
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


def test_help_stands_beside_other_words(capsys):
    assert main(["train", "model=reference", "-h"]) == 0
    assert "--model reference:" in capsys.readouterr().out


def test_no_line_of_the_help_is_wider_than_a_screen():
    for verb in VERBS_WITH_SETTINGS:
        assert max(map(len, help_text(verb).splitlines())) <= 100
