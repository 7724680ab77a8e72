"""``layerdag train|sample --help``: what the verb does, an example, and every setting.

The settings are read from the YAML files as they stand, with their comments. Neither Hydra nor
torch is imported, so that help does not keep anybody waiting.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from layerdag.cli.settings._places import config_dir

# Sections of a main file that are not settings of the verb.
_NOT_SETTINGS = ("defaults", "hydra")
_SETTING = re.compile(r"(?P<indent> *)(?P<name>\w+):(?P<value>[^#\n]*)(?:#\s*(?P<comment>.*))?")
_LONGEST_DEFAULT = 16
_GROUP = re.compile(r"  - (?P<name>\w+): (?P<chosen>\w+)")


@dataclass(frozen=True)
class _Verb:
    """What the help of a verb says beside its settings."""

    summary: str
    example: str
    notes: str


_VERBS = {
    "train": _Verb(
        "Train a generator of graphs or execution traces. Writes RUN/best and RUN/last "
        "(checkpoints) and RUN/train.jsonl (figures).",
        "  layerdag train data=corpus model=fast training.max_seconds=600 seed=0\n"
        "  layerdag train data=folder data.folder=traces data.labels=labels.csv out=outputs/mine\n"
        "  layerdag train resume=outputs/mine training.max_steps=4000\n"
        "  layerdag train --multirun model=fast,reference seed=0,1,2\n"
        "  torchrun --nproc-per-node 2 train.py data=corpus",
        "Several values, separated by commas, with --multirun: one run for each.",
    ),
    "sample": _Verb(
        "Sample graphs or execution traces from a checkpoint. Writes one file or folder per sample "
        "and a manifest with seeds and settings.",
        "  layerdag sample num=20 label=0.02 +conditions.family=gpt seed=0 out=samples\n"
        "  layerdag sample checkpoint=outputs/train/.../best num=100 out=samples",
        "A condition is added with a plus: +conditions.strategy=ddp.",
    ),
}
VERBS_WITH_SETTINGS = tuple(_VERBS)


@dataclass(frozen=True)
class Setting:
    """One line of a YAML file.

    Attributes:
        name: In full, as it is typed ("training.max_steps").
        default: As it stands in the file.
        comment: What it means; may be empty.
    """

    name: str
    default: str
    comment: str


def help_text(verb: str) -> str:
    """Return the help of a verb whose settings are YAML files."""
    about = _VERBS[verb]
    parts = [
        f"usage: layerdag {verb} [setting=value ...]",
        about.summary,
        f"example:\n{about.example}",
        about.notes,
        *_sections(verb),
        "'--cfg job' prints the settings as they are composed; dry_run=true checks them and stops.",
    ]
    return "\n\n".join(parts) + "\n"


def settings_of(file: Path, prefix: str = "") -> list[Setting]:
    """Return the settings of a YAML file; ``name``, which is the choice itself, is left out.

    A group of settings is told by those in it, under their names in full.
    """
    found: list[Setting] = []
    above: list[str] = []  # names of the groups that the line lies in
    for match in map(_SETTING.match, file.read_text(encoding="utf-8").splitlines()):
        if match is None:
            continue
        above = [*above[: len(match["indent"]) // 2], match["name"]]
        value, comment = match["value"].strip(), (match["comment"] or "").strip()
        is_group = not value
        if above[0] not in (*_NOT_SETTINGS, "name") and not is_group:
            found.append(Setting(f"{prefix}{'.'.join(above)}", value, comment))
    return found


def _sections(verb: str) -> Iterator[str]:
    """Yield the settings of the main file, and those of each choice of each group."""
    main = config_dir() / f"{verb}.yaml"
    yield _section(f"settings of {verb}, with their defaults:", settings_of(main))
    for match in filter(None, map(_GROUP.match, main.read_text(encoding="utf-8").splitlines())):
        group, chosen = match["name"], match["chosen"]
        files = sorted((config_dir() / group).rglob("*.yaml"))
        for file in sorted(files, key=lambda f: f.stem != chosen):
            yield _choice(group, file, is_default=file.stem == chosen, is_only=len(files) == 1)


def _choice(group: str, file: Path, *, is_default: bool, is_only: bool) -> str:
    """Return the section of one choice of a group ("model=fast")."""
    comments = [
        line[2:] for line in file.read_text(encoding="utf-8").splitlines() if line[:1] == "#"
    ]
    about = " ".join(line for line in comments if not line.startswith("@"))
    choice = file.relative_to(config_dir() / group).with_suffix("").as_posix()
    if group == "experiment":
        return f"{group}={choice}: {about}"
    title = f"{group}.*" if is_only and is_default else f"{group}={choice}"
    default = " (default)" if is_default and not is_only else ""
    return _section(f"{title}{default}: {about}", settings_of(file, f"{group}."))


def _section(title: str, settings: list[Setting]) -> str:
    """Return a title and the settings below it, in columns."""
    shown = [(s.name, _shown(s.default), s.comment) for s in settings]
    widths = [max((len(row[i]) for row in shown), default=0) for i in (0, 1)]
    rows = [f"  {n:<{widths[0]}}  {d:<{widths[1]}}  {c}".rstrip() for n, d, c in shown]
    return "\n".join([title, *rows])


def _shown(default: str) -> str:
    """Return a default as the help shows it: long lists are cut, what is composed is left out."""
    if default == "???":
        return "required"
    if len(default) > _LONGEST_DEFAULT and default.startswith("["):
        return f"{default[: _LONGEST_DEFAULT - 3].rpartition(',')[0]},...]".replace(" ", "")
    return "" if "${" in default else default
