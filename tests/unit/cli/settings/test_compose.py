from dataclasses import dataclass
from pathlib import Path

import pytest

from layerdag.cli.settings import as_plain, build, compose, run
from layerdag.errors import ConfigError


@dataclass(frozen=True)
class Sample:
    steps: int = 1
    rate: float = 0.5
    name: str | None = None
    sizes: tuple[int, ...] = ()


def test_override_changes_the_config() -> None:
    assert compose("train", ["training.max_steps=7", "seed=3"]).training.max_steps == 7


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "training.max_step=7",
            r"Unknown setting 'training.max_step'. Did you mean 'training.max_steps'",
        ),
        ("model=fsat", r"no model=fsat. Did you mean 'fast'"),
        ("sede=1", r"Unknown setting 'sede'. Did you mean 'seed'"),
        ("training.max_steps=[1", "does not parse"),
    ],
)
def test_wrong_override_is_refused_with_the_nearest_name(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose("train", [override])


def test_a_condition_without_its_plus_is_told_so() -> None:
    with pytest.raises(ConfigError, match=r"write \+conditions.family=gpt"):
        compose("sample", ["conditions.family=gpt"])


@pytest.mark.parametrize("data", ["folder", "tpu_tile", "dgrl"])
def test_a_setting_without_default_is_named(data: str) -> None:
    with pytest.raises(ConfigError, match=r"'data.folder' is missing .* write data.folder="):
        as_plain(compose("train", [f"data={data}"]).data)


def test_build_fills_a_dataclass() -> None:
    built = build(Sample, {"steps": 3, "rate": 2, "sizes": [1, 2], "name": None}, "sample")
    assert built == Sample(steps=3, rate=2.0, sizes=(1, 2))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"step": 1}, "Unknown setting 'sample.step'. Did you mean 'steps'"),
        ({"steps": 1.5}, "'sample.steps' must be of type"),
        ({"steps": True}, "'sample.steps' must be of type"),
        ({"name": 3}, "'sample.name' must be of type"),
    ],
)
def test_build_refuses_what_the_dataclass_does_not_take(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build(Sample, values, "sample")


@pytest.mark.parametrize(
    ("name", "words", "folders"),
    [
        ("sample", ["seed=1,2", "out=same"], ["same/0", "same/1"]),
        ("sample", ["seed=1,2"], ["outputs/samples/0", "outputs/samples/1"]),
        ("train", ["seed=1,2", "out='a b'"], ["a b/0", "a b/1"]),
        ("train", ["seed=1,2", "out=x/${seed}"], ["x/1", "x/2"]),
        ("sample", ["out=a,b"], ["a", "b"]),
    ],
)
def test_runs_of_a_sweep_get_folders_of_their_own(
    name: str,
    words: list[str],
    folders: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    found: list[str] = []
    run(name, lambda config: found.append(str(config.out)), ["--multirun", *words])
    assert found == folders
    told = "one folder for all" in capsys.readouterr().err
    assert told == folders[0].endswith("/0")
