"""Hydra behind one door: composing configs, checking overrides, building typed settings.

Hydra's own messages name neither the nearest key nor the group that was meant, and come with a
traceback. So overrides are checked here first, against the composed config, and Hydra only runs
what is known to compose.
"""

import functools
import os
import sys
import typing
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

from layerdag._runtime import did_you_mean
from layerdag.cli.settings._places import config_dir
from layerdag.errors import ConfigError

_FULL_ERROR = "HYDRA_FULL_ERROR"
HYDRA_FLAGS = ("-", "hydra.", "hydra/", "+hydra", "~hydra")


def compose(name: str, overrides: Sequence[str] = ()) -> DictConfig:
    """Return the config ``name`` with plain overrides applied.

    Raises:
        ConfigError: If an override names an unknown key, group or file, or does not parse.
    """
    parsed = _parse(overrides)
    _check_groups(parsed)
    base = _defaults(name, tuple(str(o.input_line) for o in parsed if _is_group(o)))
    known = _flat_keys(base)
    for override in parsed:
        if not _is_group(override) and not override.is_add():
            _check_is_no_addition(base, override)
            _check_key(str(override.key_or_group), known)
    return _compose(name, [str(o.input_line) for o in parsed])


def run(name: str, task: Callable[[DictConfig], float | None], overrides: Sequence[str]) -> int:
    """Check ``words``, let Hydra run ``task`` once or as a sweep, and return the exit code.

    Errors come out of this function as they are, so that the command shows one line instead of
    Hydra's traceback.
    """
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

    argv = sys.argv
    sys.argv = [f"{name}.py", *overrides]
    try:
        with _errors_as_they_are():
            main = hydra.main(config_path=str(config_dir()), config_name=name, version_base="1.3")
            main(guarded)()
    finally:
        sys.argv = argv
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
    usual = dict(typing.cast(Mapping[str, Any], OmegaConf.to_container(_compose(name, []))))
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
def _errors_as_they_are() -> Iterator[None]:
    """Let Hydra raise what goes wrong outside of the task (an output folder that cannot be made).

    Raises:
        ConfigError: In place of Hydra's and OmegaConf's own errors.
    """
    before = os.environ.get(_FULL_ERROR)
    os.environ[_FULL_ERROR] = "1"
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        first = str(error).splitlines()[0].rstrip(".")
        raise ConfigError(f"The configuration cannot be used: {first}.") from error
    finally:
        os.environ.pop(_FULL_ERROR)
        if before is not None:
            os.environ[_FULL_ERROR] = before


def _parse(overrides: Sequence[str]) -> list[Override]:
    try:
        return OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise ConfigError(
            f"An override does not parse: {error}. Write key=value, for example seed=1."
        ) from error


@functools.lru_cache(maxsize=64)
def _defaults(name: str, groups: tuple[str, ...]) -> DictConfig:
    """Return the config ``name`` with a choice of groups, which is not to be changed."""
    config = _compose(name, list(groups))
    OmegaConf.set_readonly(config, value=True)
    return config


def _compose(name: str, overrides: list[str]) -> DictConfig:
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(config_dir()), version_base="1.3"):
            return hydra.compose(name, overrides)
    except (HydraException, OmegaConfBaseException) as error:
        first = str(error).splitlines()[0].rstrip(".")
        raise ConfigError(f"The configuration cannot be composed: {first}.") from error


def _is_group(override: Override) -> bool:
    return (config_dir() / str(override.key_or_group)).is_dir()


def _check_groups(parsed: list[Override]) -> None:
    """Refuse a group option that has no file."""
    for override in parsed:
        if not _is_group(override):
            continue
        folder = config_dir() / override.key_or_group
        options = sorted(
            p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.yaml")
        )
        value = str(override.value())
        if value not in options:
            raise ConfigError(
                f"There is no {override.key_or_group}={value}.{did_you_mean(value, options)} "
                f"Known: {', '.join(options)}."
            )


def _check_is_no_addition(config: DictConfig, override: Override) -> None:
    """Refuse a key that is to be added to an empty mapping but lacks the plus."""
    parent = str(override.key_or_group).rpartition(".")[0]
    if parent and OmegaConf.select(config, parent) == {}:
        raise ConfigError(
            f"'{parent}' is empty until something is added to it: write +{override.input_line}."
        )


def _check_key(key: str, known: list[str], prefix: str = "") -> None:
    """Refuse a key that is not known, with the nearest one."""
    if key not in known:
        groups = [p.name for p in config_dir().iterdir() if p.is_dir()] if not prefix else []
        raise ConfigError(
            f"Unknown setting '{prefix}{key}'.{did_you_mean(key, [*known, *groups])} "
            "'--cfg job' prints all settings."
        )


def _flat_keys(config: DictConfig) -> list[str]:
    """Return every key and group of keys of ``config`` in dotted form."""
    found: list[str] = []

    def walk(node: Mapping[Any, Any], prefix: str) -> None:
        for key, child in node.items():
            found.append(f"{prefix}{key}")
            if isinstance(child, Mapping):
                walk(child, f"{prefix}{key}.")

    walk(typing.cast(Mapping[Any, Any], OmegaConf.to_container(config, resolve=False)), "")
    return found


def _check_words(name: str, overrides: Sequence[str]) -> None:
    """Compose once for every single choice of a sweep, so that each value is checked."""
    plain = [word for word in overrides if not word.startswith(HYDRA_FLAGS) and "=" in word]
    stray = [w for w in overrides if "=" not in w and not w.startswith("-")]
    if stray and not any(
        w in ("--cfg", "-c", "--package", "-p", "--info", "-i") for w in overrides
    ):
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


def as_plain(config: DictConfig) -> dict[str, Any]:
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
