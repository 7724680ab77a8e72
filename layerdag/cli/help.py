"""``layerdag train|sample --help``: what the verb does, an example, and every setting.

The settings are read from the YAML files as they stand, with their comments. Neither Hydra nor
torch is imported, so that help does not keep anybody waiting.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from layerdag.cli.flags import (
    METAVARS,
    Setting,
    config_dir,
    flag_of,
    options_of,
    settings_of,
    settings_of_verb,
    usual_choices,
)

WIDTH = 100
"""Columns of a paragraph of any help."""

_LONGEST_DEFAULT = 16


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
        "  layerdag train --max-seconds 600 --out outputs/mine     (on the embedded corpus)\n"
        "  layerdag train --folder traces --labels labels.csv --model fast --width 64\n"
        "  layerdag train --resume outputs/mine --max-steps 4000\n"
        "  layerdag train --multirun model=fast,reference seed=0,1,2\n"
        "  torchrun --nproc-per-node 2 -m layerdag.cli.main train --data corpus",
        "Every setting is a flag, --name VALUE or --name=VALUE (--no-name for what is true or "
        "false), or a word of Hydra, group.name=VALUE: --max-steps 9 is training.max_steps=9. "
        "--experiment NAME takes the settings of an experiment. Several values, separated by "
        "commas, with --multirun: one run for each.",
    ),
    "sample": _Verb(
        "Sample graphs or execution traces from a checkpoint. Writes one file or folder per sample "
        "and a manifest with seeds and settings.",
        "  layerdag sample family=gpt strategy=ddp --num 4 --out samples\n"
        "  layerdag sample --checkpoint llm --family llama3 --world-size 64 --num 2\n"
        "  layerdag sample --checkpoint outputs/mine/best --num 100 --label 0.02 --overwrite",
        "Every setting is a flag, --name VALUE or --name=VALUE (--no-name for what is true or "
        "false), or a word, name=VALUE. So is every condition of the checkpoint: family=gpt or "
        "--family gpt.",
    ),
}
VERBS_WITH_SETTINGS = tuple(_VERBS)


def help_text(verb: str) -> str:
    """Return the help of a verb whose settings are YAML files."""
    about = _VERBS[verb]
    parts = [
        f"usage: layerdag {verb} [--name VALUE ...] [name=VALUE ...]",
        textwrap.fill(about.summary, WIDTH),
        f"example:\n{about.example}",
        textwrap.fill(about.notes, WIDTH),
        *_sections(verb),
        "'--cfg job' prints the settings as they are composed; --dry-run checks them and stops.",
    ]
    return "\n\n".join(parts) + "\n"


def _sections(verb: str) -> Iterator[str]:
    """Yield the settings of the main file, and those of each choice of each group."""
    usual = usual_choices(verb)
    yield from _own_sections(verb, settings_of_verb(verb, usual))
    for group in usual:
        options = sorted(options_of(group), key=lambda option: option != usual[group])
        if group == "experiment":
            rows = [(option, "", _about(group, option)) for option in options]
            yield "\n".join(["--experiment NAME, NAME one of:", *_columns(rows)])
            continue
        for option in options:
            every = settings_of_verb(verb, {**usual, group: option})
            title = _title(group, option, is_default=option == usual[group], of=len(options))
            yield _section(title, settings_of(_file(group, option), f"{group}."), every)


def _own_sections(verb: str, every: Sequence[Setting]) -> Iterator[str]:
    """Yield the settings of the main file; those of a group in it have a section of their own."""
    file = config_dir() / f"{verb}.yaml"
    own = settings_of(file)
    alone = [setting for setting in own if "." not in setting.name]
    yield _section(f"settings of {verb}, with their defaults:", alone, every)
    groups = dict.fromkeys(s.name.partition(".")[0] for s in own if "." in s.name)
    for group in groups:
        inside = [setting for setting in own if setting.name.startswith(f"{group}.")]
        about = re.search(rf"^{group}: *# *(.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
        yield _section(f"{group}: {about[1] if about else ''}", inside, every)


def flags_of_verb(verb: str) -> list[str]:
    """Return every flag of a verb, whatever is chosen of its groups."""
    usual = usual_choices(verb)
    flags = [*(f"--{group}" for group in usual), "--help", "--multirun", "--cfg"]
    for group, option in [("", ""), *((g, o) for g in usual for o in options_of(g))]:
        every = settings_of_verb(verb, {**usual, group: option})
        for setting in every:
            flag = flag_of(setting, every)
            flags += [flag, f"--no-{flag[2:]}"] if setting.kind == "bool" else [flag]
    return list(dict.fromkeys(flags))


def _file(group: str, option: str) -> Path:
    """Return the file of a choice."""
    return config_dir() / group / f"{option}.yaml"


def _about(group: str, option: str) -> str:
    """Return what the first lines of the file of a choice say."""
    lines = _file(group, option).read_text(encoding="utf-8").splitlines()
    return " ".join(line[2:] for line in lines if line[:1] == "#" and not line.startswith("# @"))


def _title(group: str, option: str, *, is_default: bool, of: int) -> str:
    """Return what stands over the settings of a choice ("--model fast (default): ...")."""
    about = _about(group, option)
    if of == 1:
        return f"{group}: {about}"
    return f"--{group} {option}{' (default)' if is_default else ''}: {about}"


def _section(title: str, settings: Sequence[Setting], every: Sequence[Setting]) -> str:
    """Return a title and the settings below it, in columns.

    Args:
        title: Of the section.
        settings: Those of the section.
        every: All that the verb has where these are chosen, among which a flag must be told apart.
    """
    rows = [(_flag(s, every), _shown(s.default), s.comment) for s in settings]
    return "\n".join([textwrap.fill(title, WIDTH), *_columns(rows)])


def _columns(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Yield rows of three columns; what does not fit goes on below the last column."""
    first, second = (max((len(row[i]) for row in rows), default=0) for i in (0, 1))
    start = first + second + (6 if second else 4)
    for name, default, comment in rows:
        middle = f"{default:<{second}}  " if second else ""
        told = textwrap.wrap(comment, max(WIDTH - start, 40), break_on_hyphens=False) or [""]
        yield f"  {name:<{first}}  {middle}{told[0]}".rstrip()
        yield from (" " * start + line for line in told[1:])


def _flag(setting: Setting, every: Sequence[Setting]) -> str:
    """Return the flag of a setting with what it takes: ``--max-steps N``, ``--[no-]console``."""
    flag = flag_of(setting, every)
    if setting.kind == "bool":
        return f"--[no-]{flag[2:]}"
    return f"{flag} {METAVARS[setting.kind]}"


def _shown(default: str) -> str:
    """Return a default as the help shows it: long lists are cut, what is composed is left out."""
    if default == "???":
        return "required"
    if len(default) > _LONGEST_DEFAULT and default.startswith("["):
        return f"{default[: _LONGEST_DEFAULT - 3].rpartition(',')[0]},...]".replace(" ", "")
    return "" if "${" in default else default
