"""What a training run shows of its model at each validation."""

import contextlib
import io
import json
import math
import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from private_jobs import GUARANTEE, private_jobs
from raw_graphs import chain
from tiny_checkpoints import chain_checkpoint, job_checkpoint

from layerdag.api.preview import SamplePreview
from layerdag.cli.commands import train as verb
from layerdag.cli.commands.train import _ending, _promise, announcement
from layerdag.cli.compose import compose
from layerdag.cli.main import main
from layerdag.cli.settings import train_config
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.latent_preferential import load_latent_preferential
from layerdag.datasets.settings import LatentPreferentialConfig
from layerdag.dp.settings import Privacy
from layerdag.dp.tuning import PrivateResult
from layerdag.errors import ConfigError
from layerdag.models.base import SampleRequest, SampleResult
from layerdag.models.spec import build_model
from layerdag.sampling.folder import write_samples
from layerdag.sampling.parts import PartSettings, write_parts
from layerdag.sampling.settings import GenerationSettings
from layerdag.sampling.summary import after_parts, after_sampling, before_parts
from layerdag.training.batches import local_device
from layerdag.training.checkpoint import RUN_FILE, load_checkpoint
from layerdag.training.loggers import ConsoleLogger, JsonlLogger, open_loggers
from layerdag.training.model_spec import spec_for
from layerdag.training.run import TrainResult

RESULT = PrivateResult(
    TrainResult("budget", 40, 1.0, {}, Path("my run/best"), Path("my run/last")), GUARANTEE
)


def test_the_card_has_the_promise_and_its_limits():
    card = RESULT.card()
    assert "| epsilon | 3 |" in card
    assert "| delta | 0.001 |" in card
    assert "| measured lower bound of epsilon | not measured |" in card
    assert "not about those of the checkpoint" in card


def test_the_end_says_the_promise_and_how_to_sample():
    told = _promise(RESULT)
    assert "2,884 parameters tuned: (epsilon = 3, delta = 0.001)" in told
    assert "layerdag sample checkpoint='my run/best'" in told
    audited = replace(RESULT, guarantee=replace(GUARANTEE, lower_bound=0.4))
    assert "epsilon is 0.40 or more" in _promise(audited)


def test_the_beginning_counts_units(tmp_path):
    run = private_jobs(tmp_path).run(tmp_path / "run", Privacy(epsilon=1.0))
    assert "12 graphs of 12 runs, in the words, bins and conditions of base" in str(run)


def test_a_run_says_what_it_trains_on_what():
    data = load_latent_preferential(LatentPreferentialConfig(num_train=3, num_val=2, num_test=1))
    spec = spec_for(data, "fast", {"width": 32, "depth": 1})
    told = announcement(data.replaced(left_out=("g7: is empty", "g9")), spec, torch.device("cpu"))
    count = sum(parameter.numel() for parameter in build_model(spec).parameters())
    assert "3 train, 2 val, 1 test graphs" in told
    assert "left out: 2 graphs, the first: g7: is empty" in told
    assert f"fast, {count:,} parameters, on cpu" in told
    assert "nats per decision" in told


def test_a_finished_run_says_how_to_sample_from_it():
    result = TrainResult("patience", 40, 3.2, {}, Path("my runs/a/best"), Path("my runs/a/last"))
    told = _ending(result)
    assert "trained 40 steps in 3 s" in told
    assert "trained 1 step in 3 s" in _ending(replace(result, step=1))
    assert shlex.split(told)[-1] == "checkpoint=my runs/a/best"


@pytest.mark.parametrize("checkpoint", [chain_checkpoint, job_checkpoint])
def test_the_commands_that_samples_suggest_run(checkpoint, tmp_path, monkeypatch):
    settings = GenerationSettings(num=2, best_of=1, max_nodes=12)
    told = after_sampling(write_samples(checkpoint(tmp_path), settings, tmp_path / "out"))
    assert told.startswith("wrote 2 samples to ")
    monkeypatch.chdir(tmp_path)
    check, look = told.split("Check all: layerdag ")[1].split("; look at the first: layerdag ")
    assert main(shlex.split(check)) in (0, 1)
    assert main(shlex.split(look)) == 0
    assert (tmp_path / "sample.svg").is_file()


def test_sample_leaves_its_json_alone_on_standard_output(tmp_path, capsys):
    folder = chain_checkpoint(tmp_path).path
    words = [f"checkpoint={folder}", "num=1", "best_of=1", "max_nodes=8", f"out={tmp_path}/s"]
    assert main(["sample", *words, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["num"] == 1
    assert "wrote 1 sample to " in err


def test_more_shards_than_parts_are_told_which_size_fits():
    told = before_parts(400, PartSettings(part_size=1000, shard="1/2"))
    assert "work for only 1 of 2 shards" in told
    fitting = int(told.split("part_size=")[1].split()[0])
    assert before_parts(400, PartSettings(part_size=fitting, shard="1/2")) == ""
    assert before_parts(400, PartSettings(part_size=1000)) == ""


def test_the_commands_that_parts_suggest_run(tmp_path, monkeypatch):
    settings = GenerationSettings(num=5, best_of=1, max_nodes=12)
    out = tmp_path / "my samples"
    checkpoint = job_checkpoint(tmp_path)
    told = [
        after_parts(
            write_parts(checkpoint, settings, out, PartSettings(part_size=2, shard=share)).parent
        )
        for share in ("1/2", "0/2")
    ]
    assert told[0].startswith(f"1 of 3 parts are in {out}; the same command writes what is missing")
    assert told[1].startswith(f"5 samples in 3 parts are in {out}. ")
    check, look = told[1].split("Check all: layerdag ")[1].split("; look at them: layerdag ")
    assert main(shlex.split(check)) in (0, 1)
    assert main(shlex.split(look)) == 0


GRAPHS = [chain(f"g{i}", "abcab"[: 2 + i % 4], label=1.0 + i) for i in range(8)]


def test_a_look_at_the_model_changes_neither_its_mode_nor_what_it_shows_next(tmp_path):
    model = chain_checkpoint(tmp_path).model
    data = GraphDataset.build("chains", "flow", {"train": GRAPHS})
    watch = SamplePreview(data, tmp_path / "pictures", 1)
    model.train()
    first, again = watch(model, 3), watch(model, 4)
    assert model.training
    assert first.pictures["samples"] == tmp_path / "pictures" / "samples-000003.png"
    assert first.pictures["samples"].read_bytes().startswith(b"\x89PNG")
    timed = "samples/graphs_per_s"
    assert set(first.values) == {
        "samples/valid_share", timed, "samples/mean_nodes", "samples/truncated_share",
    }  # fmt: skip
    # Seeds are fixed, so the same weights show the same graphs; only the speed differs.
    assert {k: v for k, v in first.values.items() if k != timed} == {
        k: v for k, v in again.values.items() if k != timed
    }
    assert first.values[timed] > 0
    assert 0 <= first.values["samples/valid_share"] <= 1


def test_a_model_that_never_ends_a_graph_is_stopped_at_twice_the_largest_training_graph(
    tmp_path, monkeypatch
):
    data = GraphDataset.build("chains", "flow", {"train": GRAPHS})
    largest = max(dag.num_nodes for dag in data.graphs["train"])

    model = chain_checkpoint(tmp_path).model
    draw = model.sample
    limits = []

    def observed(request: SampleRequest) -> SampleResult:
        limits.append(request.max_nodes)
        return draw(request)

    monkeypatch.setattr(model, "sample", observed)
    SamplePreview(data, tmp_path / "pictures", 1)(model, 0)
    assert limits == [2 * largest]


TINY = (
    "data=latent_preferential", "data.num_train=6", "++data.num_val=2", "++data.num_test=2",
    "model.width=32", "model.depth=1", "training.evaluate_every=1",
    "training.lr_schedule.warmup_steps=1",
    "logger.console=false", "logger.sample_graphs=0", "device=cpu",
)  # fmt: skip


@dataclass(frozen=True)
class Ran:
    """A run of two steps, with what it said."""

    folder: Path
    code: int
    out: str
    err: str


def train(*words: str) -> int:
    return main(["train", *TINY, *words])


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Ran:
    folder = tmp_path_factory.mktemp("runs") / "my run"
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = train("training.max_steps=2", "logger.console=true", f"out='{folder}'", "--json")
    return Ran(folder, code, out.getvalue(), err.getvalue())


def test_a_run_prints_one_json_object_with_what_came_of_it(ran):
    assert ran.code == 0
    told = json.loads(ran.out)
    assert (told["reason"], told["step"]) == ("budget", 2)
    assert told["best"] == str(ran.folder / "best")
    assert told["last"] == str(ran.folder / "last")
    assert all(math.isfinite(value) for value in told["metrics"].values())


def test_the_console_tells_data_model_each_validation_and_how_to_sample(ran):
    assert "6 train, 2 val, 2 test graphs" in ran.err
    assert "trained 2 steps" in ran.err
    assert f"checkpoint={shlex.quote(str(ran.folder / 'best'))}" in ran.err.replace('"', "'")
    lines = [json.loads(x) for x in (ran.folder / "train.jsonl").read_text().splitlines()]
    assert [x["step"] for x in lines if "validation/node" in x] == [1, 2]


def test_too_few_held_out_graphs_are_warned_of(ran):
    assert "layerdag: warning: " in ran.err


def test_settings_stay_beside_the_checkpoints_and_never_inside_with_paths(ran):
    kept = json.loads((ran.folder / "run.json").read_text())["config"]
    assert kept["training"]["max_steps"] == 2
    shared = json.loads((ran.folder / "best" / "config.json").read_text())["run"]
    assert "out" not in shared
    assert shared["data"]["num_train"] == 6


def test_resuming_goes_on_from_the_last_step_with_the_settings_of_the_run(ran, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(ran.folder, run)
    words = [f"resume={run}", "training.max_steps=3", "logger.console=false", "--json"]
    assert main(["train", *words]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 3
    steps = [json.loads(x)["step"] for x in (run / "train.jsonl").read_text().splitlines()]
    assert sorted(set(steps)) == [1, 2, 3]


def test_settings_that_cannot_go_on_with_a_run_are_not_kept_as_its_own(ran, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(ran.folder, run)
    before = (run / "run.json").read_text()
    words = (f"resume={run}", "training.max_steps=3", "logger.console=false")
    assert main(["train", *words, "model.width=64"]) == 1
    assert "cannot be resumed" in capsys.readouterr().err
    assert (run / "run.json").read_text() == before


def test_an_older_run_is_replaced_only_when_told(ran, capsys):
    before = (ran.folder / "train.jsonl").read_bytes()
    assert train("training.max_steps=1", f"out='{ran.folder}'") == 2
    assert "overwrite=true" in capsys.readouterr().err
    assert (ran.folder / "train.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("resume=nowhere",), 1, "nowhere"),
        (("training.max_steps=-1",), 2, "max_steps"),
        (("++data.num_val=0",), 1, "latent_preferential: the val part is empty"),
        (("conditions=[color]",), 1, "color"),
    ],
)
def test_what_cannot_be_trained_is_one_line_and_leaves_no_checkpoint(
    words, code, told, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert train(*words, "out=here") == code
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("layerdag: error:")
    assert told in error
    assert not list(tmp_path.rglob("meta.json"))
    assert not (tmp_path / "outputs").exists()


def test_graphs_that_are_not_understood_are_told_kept_and_strictly_not_trained_on(tmp_path, capsys):
    folder, out = tmp_path / "graphs", tmp_path / "run"
    folder.mkdir()
    for i in range(10):
        loop = '{"source": 0, "target": 0}' if i == 0 else ""
        nodes = ", ".join(f'{{"id": {k}, "op": "mm"}}' for k in range(i + 1))
        (folder / f"g{i}.json").write_text(f'{{"nodes": [{nodes}], "links": [{loop}]}}')
    words = [f"--folder={folder}", f"--out={out}", *TINY[4:], "--max-steps=1"]
    assert main(["train", *words, "--strict"]) == 1
    told = capsys.readouterr().err
    assert told.count("note: ") == 1
    assert "g0.json" in told.splitlines()[-1]
    assert not out.exists()
    assert main(["train", *words]) == 0
    assert capsys.readouterr().err.count("note: ") == 1
    (note,) = json.loads((out / RUN_FILE).read_text())["notes"]
    assert note["word"] == "0 -> 0"
    (folder / "g0.json").unlink()
    assert main(["train", *words, "--strict", "--overwrite"]) == 0
    assert json.loads((out / RUN_FILE).read_text())["notes"] == []


def test_a_dry_run_prints_the_resolved_settings_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert train("dry_run=true", "seed=7", "out=here") == 0
    shown = OmegaConf.create(capsys.readouterr().out)
    assert (shown.seed, shown.out, shown.data.num_train) == (7, "here", 6)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_stopped_before_its_first_step_has_nothing_to_go_on_with(
    tmp_path, monkeypatch, capsys
):
    def stopped(*_: object, **__: object) -> TrainResult:
        raise KeyboardInterrupt

    monkeypatch.setattr("layerdag.training.loop.train", stopped)
    assert train("training.max_steps=1", f"out={tmp_path / 'run'}") == 130
    assert "No checkpoint was written yet." in capsys.readouterr().err


def test_only_the_first_process_writes(tmp_path, monkeypatch):
    # As torchrun starts the second process: it holds no folder, which its first one does.
    monkeypatch.setenv("RANK", "1")
    assert not verb._is_first()
    monkeypatch.delenv("RANK")
    assert verb._is_first()


def test_a_gpu_that_is_not_there_is_told_with_what_to_use(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="torch sees no GPU; use device=cpu"):
        local_device("cuda")
    assert local_device("auto") == torch.device("cpu")
    with pytest.raises(ConfigError, match="There is no device 'warp'; use auto, cpu or cuda"):
        local_device("warp")


@pytest.mark.parametrize("word", ["sometimes", "3"])
def test_an_unknown_mode_of_wandb_is_refused_with_those_that_are_known(word):
    with pytest.raises(ConfigError, match=r"wandb.*disabled"):
        train_config(compose("train", [f"logger.wandb={word}", "out=x"]))


def test_the_log_goes_on_after_the_resumed_step(tmp_path):
    (tmp_path / "train.jsonl").write_text("".join(f'{{"step": {i}}}\n' for i in (1, 2, 3)))
    JsonlLogger(tmp_path / "train.jsonl", 2).close()
    # What was logged after the checkpoint is done again.
    assert (tmp_path / "train.jsonl").read_text() == '{"step": 1}\n{"step": 2}\n'


def test_the_console_is_a_logger_where_it_is_asked_for(tmp_path):
    settings = train_config(compose("train", ["logger.wandb=disabled", "out=x"])).logger
    loggers = open_loggers(settings, tmp_path, {}, print)
    assert [type(logger) for logger in loggers] == [ConsoleLogger]
    assert open_loggers(replace(settings, console=False), tmp_path, {}, print) == []


def test_checkpoints_that_are_not_there_are_told_as_none(tmp_path):
    (tmp_path / "last").mkdir()
    result = TrainResult("SIGINT", 3, 1.26, {}, tmp_path / "best", tmp_path / "last")
    assert result.to_dict() == {
        "reason": "SIGINT",
        "step": 3,
        "seconds": 1.3,
        "metrics": {},
        "best": None,
        "last": str(tmp_path / "last"),
    }


SMALL = ("train", "data=corpus", "data.families=[mlp]", "data.max_nodes=60", "device=cpu")
TUNING = ("init=pretrained", "privacy.epsilon=inf", "privacy.steps=1")


def test_a_private_run_leaves_a_checkpoint_a_card_and_a_log_of_the_owner(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main([*SMALL, *TUNING, "logger.console=false", f"out={folder}", "--json"]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert told["privacy"]["epsilon"] is None
    assert told["best"] == str(folder / "best")
    assert "nothing is promised" in captured.err
    assert load_checkpoint(folder / "best").meta.privacy is not None
    assert "| epsilon | none |" in (folder / "privacy.md").read_text()
    lines = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    assert all(name == "step" or name.startswith("owner_only/") for row in lines for name in row)
    config = json.loads((folder / "best" / "config.json").read_text())["run"]
    assert config["privacy"]["epsilon"] == "inf"
    assert str(tmp_path) not in json.dumps(config)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("privacy.epsilon=3",), "name their checkpoint with init=FOLDER"),
        ((*TUNING, "model.width=64"), "the model is that of init; leave out width"),
        ((*TUNING, "training.max_steps=5"), "set privacy.steps"),
        ((*TUNING, "conditions=[family]"), "leave out conditions"),
        ((*TUNING, "logger.wandb=offline"), "logger.wandb"),
        ((*TUNING, "+data.num_bins=4"), "data.num_bins would be learned from the private graphs"),
        (("privacy.epsilon=-1",), "privacy.epsilon must be above 0"),
    ],
)
def test_what_would_break_the_promise_is_one_line(words, told, tmp_path, capsys):
    assert main([*SMALL, *words, f"out={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("layerdag: error:")
    assert told in error
    assert not list(tmp_path.rglob("meta.json"))
