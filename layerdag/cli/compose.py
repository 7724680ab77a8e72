"""Hydra behind one door: composing configs, checking overrides, building typed settings.

Hydra's own messages name neither the nearest key nor the group that was meant, and come with a
traceback. So overrides are checked here first, against the settings of the YAML files, and Hydra
only runs what is known to compose.
"""

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from layerdag.cli.flags import (
    GROUPS,
    Grammar,
    config_dir,
    options_of,
    quoted,
    require_option,
    settings_of_verb,
    usual_choices,
    value_in,
)
from layerdag.datasets.loading import kind_of_folder
from layerdag.errors import ConfigError, UsageError
from layerdag.runtime.settings import did_you_mean, flattened, grouped
from layerdag.training.checkpoint import checkpoint_path, read_schema
from layerdag.training.run_file import recorded_settings
from layerdag.training.run_folder import run_of

_FULL_ERROR = "HYDRA_FULL_ERROR"
_OF_HYDRA = ("-", "hydra.", "hydra/", "+hydra", "~hydra")


def compose(name: str, words: Sequence[str] = ()) -> DictConfig:
    """Return the config ``name`` with flags and plain overrides applied.

    Raises:
        ConfigError: If an override names an unknown key, group or file, or does not parse.
    """
    parsed = _parse(hydra_overrides(name, words))
    values = {str(o.key_or_group): str(o.value()) for o in parsed}
    chosen = {key: value for key, value in values.items() if (config_dir() / key).is_dir()}
    for group, value in chosen.items():
        require_option(group, value)
    try:
        return _compose(name, [str(o.input_line) for o in parsed])
    except ConfigError as error:
        refused = re.match("Could not override '([^']+)'", str(error.__cause__))
        if refused is None:
            raise
        known = [s.name for s in settings_of_verb(name, usual_choices(name) | chosen)]
        raise ConfigError(
            f"Unknown setting '{refused[1]}'.{did_you_mean(refused[1], [*known, *GROUPS[name]])} "
            "'--cfg job' prints all settings."
        ) from None


def hydra_overrides(name: str, words: Sequence[str]) -> list[str]:
    """Return the words of a command as Hydra takes them: flags, and conditions by name alone.

    A folder that is named without saying what kind of data it holds is looked into.

    Raises:
        UsageError: If a flag is unknown, means several settings, or lacks its value.
        ConfigError: If a group has no such file.
    """
    found, folder = list(words), value_in(words, "data.folder", "folder")
    is_named = value_in(words, "data", "experiment", "resume")
    if name == "train" and folder is not None and is_named is None:
        try:
            found.insert(0, f"data={kind_of_folder(Path(folder), {})}")
        except UsageError:
            found.insert(0, "data=folder")  # which says what is wrong with the folder
    settings = settings_of_verb(name, _chosen(name, found))
    return Grammar(name, settings, functools.partial(_conditions, found)).overrides(found)


def _chosen(name: str, words: Sequence[str]) -> dict[str, str]:
    """Return the file of each group, of which an experiment or the run to resume may name some."""
    resumed = with_own_settings([f"resume={value_in(words, 'resume')}"], report=False)
    groups = [word for word in resumed if word.startswith(_GROUPS_OF_RUNS)]
    named = {group: value_in(words, group) for group in GROUPS[name]}
    for group, value in named.items():
        if value:
            first = value.partition(",")[0]
            require_option(group, first)
            groups.append(f"{group}={first}")
    composed = _composed_groups(name, tuple(groups))
    return {
        group: named.get(group) or str(OmegaConf.select(composed, f"{group}.name") or usual)
        for group, usual in usual_choices(name).items()
    }


def _conditions(words: Sequence[str]) -> list[str]:
    """Return the names of the conditions of the checkpoint that the words of ``sample`` name.

    Raises:
        CheckpointError: If it cannot be read.
    """
    named = value_in(words, "checkpoint") or str(_composed_groups("sample", ()).checkpoint)
    return read_schema(checkpoint_path(named.partition(",")[0])).condition_names


def run(name: str, task: Callable[[DictConfig], float | None], words: Sequence[str]) -> int:
    """Check ``words``, let Hydra run ``task`` once or as a sweep, and return the exit code.

    Errors come out of this function as they are, so that the command shows one line instead of
    Hydra's traceback.
    """
    overrides = with_own_settings(hydra_overrides(name, words))
    _check_words(name, overrides)
    overrides = _folders_apart(name, overrides)
    failures: list[Exception] = []

    def guarded(config: DictConfig) -> float | None:
        try:
            return task(config)
        except Exception as error:
            failures.append(error)
            return None
        finally:
            _remove_if_empty(Path(HydraConfig.get().runtime.output_dir))

    argv, full_error = sys.argv, os.environ.get(_FULL_ERROR)
    sys.argv = [f"{name}.py", *overrides]
    os.environ[_FULL_ERROR] = "1"  # errors outside of the task are raised, not printed
    try:
        with _hydra_errors("used"):
            main = hydra.main(config_path=str(config_dir()), config_name=name, version_base="1.3")
            main(guarded)()
    finally:
        sys.argv = argv
        os.environ.pop(_FULL_ERROR)
        if full_error is not None:
            os.environ[_FULL_ERROR] = full_error
    if failures:
        raise failures[0]
    return 0


def _remove_if_empty(folder: Path) -> None:
    """Remove the folder that Hydra made for a run which wrote nothing there, and its parents.

    Only inside the working folder: what lies elsewhere was there before.
    """
    for parent in (folder, *folder.parents):
        if Path.cwd() not in parent.parents:
            return
        try:
            parent.rmdir()
        except OSError:  # not empty, or gone
            return


def _folders_apart(name: str, overrides: Sequence[str]) -> list[str]:
    """Return the words with a folder of its own for each run of a sweep, and say so.

    The runs of ``--multirun`` would otherwise share the one folder that ``out`` names.
    """
    if not {"-m", "--multirun"} & set(overrides):
        return list(overrides)
    given = [word for word in overrides if word.startswith("out=")]
    usual = OmegaConf.to_container(_composed_groups(name, ()))
    assert isinstance(usual, dict)
    out = (given[-1].partition("=")[2] if given else str(usual["out"])).strip("'\"")
    if "${" in out or "," in out:
        return list(overrides)
    print(
        f"layerdag: the runs of --multirun write to {out}/0, {out}/1 and so on; out={out} names "
        "one folder for all.",
        file=sys.stderr,
    )
    return [*(word for word in overrides if word not in given), f"out='{out}/${{hydra:job.num}}'"]


@contextmanager
def _hydra_errors(done: str) -> Iterator[None]:
    """Raise ConfigError in place of Hydra's and OmegaConf's own errors."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        first = str(error).splitlines()[0].rstrip(".")
        raise ConfigError(f"The configuration cannot be {done}: {first}.") from error


def _parse(overrides: Sequence[str]) -> list[Override]:
    try:
        return OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise ConfigError(
            f"An override does not parse: {error}. Write key=value, for example seed=1."
        ) from error


@functools.lru_cache(maxsize=64)
def _composed_groups(name: str, groups: tuple[str, ...]) -> DictConfig:
    config = _compose(name, list(groups))
    OmegaConf.set_readonly(config, value=True)
    return config


def _compose(name: str, overrides: list[str]) -> DictConfig:
    GlobalHydra.instance().clear()
    with (
        _hydra_errors("composed"),
        hydra.initialize_config_dir(str(config_dir()), version_base="1.3"),
    ):
        return hydra.compose(name, overrides)


def _check_words(name: str, overrides: Sequence[str]) -> None:
    """Compose once for every single choice of a sweep, so that each value is checked."""
    plain = [word for word in overrides if not word.startswith(_OF_HYDRA) and "=" in word]
    stray = [word for word in overrides if "=" not in word and not word.startswith("-")]
    if stray and not {"--cfg", "-c", "--package", "-p"} & set(overrides):
        raise ConfigError(f"'{stray[0]}' is not an override. Write key=value, for example seed=1.")
    parsed = _parse(plain)
    sweeps = [o for o in parsed if o.is_sweep_override()]
    fixed = [str(o.input_line) for o in parsed if not o.is_sweep_override()]
    if sweeps and not {"-m", "--multirun"} & set(overrides):
        raise ConfigError(
            f"'{sweeps[0].input_line}' gives several values; add --multirun to run them all."
        )
    compose(name, fixed)
    for sweep in sweeps:
        for value in sweep.sweep_string_iterator():
            compose(name, [*fixed, f"{sweep.key_or_group}={value}"])


def to_plain_dict(config: DictConfig) -> dict[str, Any]:
    """Return the resolved config as plain dictionaries, for checkpoints and logs.

    Raises:
        ConfigError: If a setting that has no default was not given; names it.
    """
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise ConfigError(
            f"'{error.full_key}' is missing and has no default: write {error.full_key}=..."
        ) from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def model_overrides(node: DictConfig) -> tuple[str | None, dict[str, Any]]:
    """Return the model and those of its settings that the user asked for.

    They are what stands in the words of the command, and what a file changed from the defaults.

    Args:
        node: The settings of the model.

    Returns:
        Name and settings; None if no model was named.
    """
    overrides = list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []
    keys = {str(o.key_or_group) for o in OverridesParser.create().parse_overrides(overrides)}
    settings = to_plain_dict(node)
    name = str(settings.pop("name"))
    file = config_dir() / "model" / f"{name}.yaml"
    usual = flattened(to_plain_dict(DictConfig(OmegaConf.load(file)))) if file.is_file() else {}
    given = {
        key: value
        for key, value in flattened(settings).items()
        if f"model.{key}" in keys or value != usual.get(key)
    }
    return (name if {"model", "model.name"} & keys else None), grouped(given)


_GROUPS_OF_RUNS = ("data", "model")
# What says how to start, not what to train.
_OF_THE_CALL = ("out", "resume", "init", "overwrite", "dry_run", "experiment")


def with_own_settings(overrides: Sequence[str], *, report: bool = True) -> list[str]:
    """Return the words of ``train`` with the settings of the run to resume before the user's own.

    Later words win. Without ``resume=...``, or where the run kept no settings, the words stay as
    they are. With ``report``, one line names settings of the run that are gone.
    """
    run = next((w.partition("=")[2] for w in overrides if re.match(r"\+{0,2}resume=", w)), "null")
    if run.strip("'\"") in ("", "null") or "," in run:
        return list(overrides)
    settings, gone = recorded_settings(run_of(Path(run.strip("'\""))))
    if gone and report:
        print(
            f"layerdag: {', '.join(gone)} of the run to resume: gone, with no effect on the "
            "weights; left out.",
            file=sys.stderr,
        )
    given = {override.lstrip("+~").partition("=")[0] for override in overrides}
    chosen = []
    for group in _GROUPS_OF_RUNS:
        kept_group = settings.get(group)
        option = str(kept_group.get("name")) if isinstance(kept_group, Mapping) else ""
        if group not in given and option in options_of(group):
            chosen.append(f"{group}={option}")
    kept = {k: v for k, v in settings.items() if k not in _OF_THE_CALL and k not in given}
    values = flattened(kept)
    leaves = [f"++{key}={_word(value)}" for key, value in values.items() if key not in given]
    return [*chosen, *leaves, *overrides]


def _word(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(map(_word, value)) + "]"
    if isinstance(value, str):
        return quoted(value)
    return repr(value)
