"""Settings of ``layerdag train`` and ``sample`` on the command line: their flags, their ``--help``.

``--name value`` becomes Hydra's ``group.name=value``. The settings are read from the YAML files as
they stand: neither Hydra nor torch is imported, so that help and completion do not keep anybody
waiting. What a setting takes follows from its default; where that is null, or a text that stands
for a path, its comment begins with the word: ``(int)``.
"""

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import layerdag
from layerdag.cli.printing import JSON
from layerdag.errors import ConfigError, UsageError
from layerdag.runtime.settings import did_you_mean

GROUPS = {"train": ("data", "model", "training", "logger", "experiment"), "sample": ()}
"""Folders of ``configs`` of which each verb takes one file."""

METAVARS = {"int": "N", "float": "X", "text": "TEXT", "path": "PATH", "list": "A,B",
            "map": "{NAME:VALUE}", "bool": ""}  # fmt: skip
"""What a setting takes, as the help shows it."""

# A bare name is looked for in these groups, in this order.
_ORDER = ("training", "model", "logger", "data", "privacy", "conditions", "wanted", "plan")
# Sections of a main file that are not settings of the verb.
_NOT_SETTINGS = ("defaults", "hydra")
_LINE = re.compile(r"(?P<indent> *)(?P<name>\w+):(?P<value>[^#\n]*)(?:#\s*(?P<comment>.*))?")
_KIND = re.compile(r"\((int|float|bool|text|path|list)\) ")
_CHOSEN = re.compile(r"  - (?P<name>\w+): (?P<chosen>\w+)")
# Hydra's own flags; those in the second line take a value.
_WITH_VALUE = ("-c", "--cfg", "-p", "--package", "-cp", "--config-path", "-cn", "--config-name",
               "-cd", "--config-dir", "-i", "--info", "--experimental-rerun")  # fmt: skip
_HYDRA = (*_WITH_VALUE, "-m", "--multirun", "--resolve", "-r", "--run", "-h", "--help", "--version",
          "--hydra-help", "-sc", "--shell-completion")  # fmt: skip


def config_dir() -> Path:
    """Return the folder of the YAML files: inside an installed package, or beside a checkout."""
    package = Path(layerdag.__file__).parent
    inside = package / "_configs"
    return inside if inside.is_dir() else package.parent / "configs"


@dataclass(frozen=True)
class Setting:
    """One line of a YAML file.

    Attributes:
        name: In full, as Hydra takes it ("training.max_steps").
        default: As it stands in the file.
        comment: What it means; may be empty.
        kind: What it takes, a key of ``METAVARS``.
    """

    name: str
    default: str
    comment: str
    kind: str


def settings_of(file: Path, prefix: str = "") -> list[Setting]:
    """Return the settings of a YAML file; ``name``, which is the choice itself, is left out.

    A group of settings is told by those in it, under their names in full.
    """
    found: list[Setting] = []
    above: list[str] = []  # names of the groups that the line lies in
    for match in map(_LINE.match, file.read_text(encoding="utf-8").splitlines()):
        if match is None:
            continue
        above = [*above[: len(match["indent"]) // 2], match["name"]]
        value, comment = match["value"].strip(), (match["comment"] or "").strip()
        is_group = not value
        if above[0] not in (*_NOT_SETTINGS, "name") and not is_group:
            stated = _KIND.match(comment)
            kind = stated[1] if stated else _kind_of(value)
            told = comment[stated.end() :] if stated else comment
            found.append(Setting(f"{prefix}{'.'.join(above)}", value, told, kind))
    return found


def _kind_of(default: str) -> str:
    if default in ("true", "false"):
        return "bool"
    if default[0] in "[{":
        return "list" if default[0] == "[" else "map"
    if re.fullmatch(r"-?\d+", default):
        return "int"
    return "float" if re.fullmatch(r"-?[\d.]+(e-?\d+)?", default) else "text"


def usual_choices(verb: str) -> dict[str, str]:
    """Return the file that a verb takes of each group unless told otherwise."""
    lines = (config_dir() / f"{verb}.yaml").read_text(encoding="utf-8").splitlines()
    return {match["name"]: match["chosen"] for match in filter(None, map(_CHOSEN.match, lines))}


def options_of(group: str) -> list[str]:
    """Return the names of the files of a group."""
    folder = config_dir() / group
    return sorted(p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.yaml"))


def settings_of_verb(verb: str, chosen: Mapping[str, str]) -> list[Setting]:
    """Return all settings of a verb, with those of the chosen file of each group.

    Args:
        verb: "train" or "sample".
        chosen: File of each group; several stand with commas between them, as in a sweep.
    """
    found = settings_of(config_dir() / f"{verb}.yaml")
    for group, names in chosen.items():
        for name in names.split(","):
            file = config_dir() / group / f"{name}.yaml"
            if group != "experiment" and file.is_file():
                found += settings_of(file, f"{group}.")
    return list({setting.name: setting for setting in reversed(found)}.values())[::-1]


def flag_of(setting: Setting, settings: Sequence[Setting]) -> str:
    """Return the shortest flag that means a setting: ``--max-steps``, ``--encoder.dropout``."""
    parts = setting.name.split(".")
    for begin in reversed(range(len(parts))):
        name = ".".join(parts[begin:])
        if _meant(name, settings) == [setting.name]:
            return _spelled(name)
    return _spelled(setting.name)


def _spelled(name: str) -> str:
    return "--" + name.replace("_", "-")


def _meant(name: str, settings: Sequence[Setting]) -> list[str]:
    """Return the settings that a name means: one, none, or several that have equal claims.

    A name in full comes first, then the end of a name: that of the first group that has it, and in
    the group what lies outermost.
    """
    names = [setting.name for setting in settings]
    if name in names:
        return [name]
    ends = [known for known in names if known.endswith(f".{name}")]
    for group in _ORDER:
        inside = [known for known in ends if known.startswith(f"{group}.")]
        if inside:
            outermost = min(known.count(".") for known in inside)
            return [known for known in inside if known.count(".") == outermost]
    return []


@dataclass(frozen=True)
class Grammar:
    """What the words of a command may mean.

    Attributes:
        verb: "train" or "sample".
        settings: All that the verb has, with the chosen files of its groups.
        conditions: Returns the conditions of the checkpoint; called for unknown names only.
    """

    verb: str
    settings: Sequence[Setting]
    conditions: Callable[[], Sequence[str]] = tuple

    def overrides(self, words: Sequence[str]) -> list[str]:
        """Return the words of a command as Hydra takes them.

        Raises:
            UsageError: If a flag is unknown, means several settings, or lacks its value.
        """
        found: list[str] = []
        waiting = list(words)
        sweeps = bool({"-m", "--multirun"} & set(words))
        while waiting:
            word = waiting.pop(0)
            if word.partition("=")[0] in _HYDRA:
                found.append(word)
                if word in _WITH_VALUE and waiting and not waiting[0].startswith("-"):
                    found.append(waiting.pop(0))
            elif word.startswith("--") and len(word) > 2:
                found.append(self._override(word, waiting, sweeps=sweeps))
            else:
                found.append(self._plain(word))
        return found

    def _override(self, word: str, waiting: list[str], *, sweeps: bool) -> str:
        """Return one flag as an override; takes its value from the words that wait."""
        flag, equals, given = word.partition("=")
        name = flag[2:].replace("-", "_")
        if name in GROUPS[self.verb]:
            return f"{name}={given if equals else _next(flag, 'NAME', waiting)}"
        negated = name.startswith("no_") and not _meant(name, self.settings)
        setting = self._setting(flag, name.removeprefix("no_") if negated else name)
        if setting is None:
            value = given if equals else _next(flag, "VALUE", waiting)
            return f"++{_open_key(name)}={_value('float', value, sweeps=sweeps)}"
        if setting.kind == "bool":
            return f"{setting.name}={_truth(flag, given, waiting, negated=negated, equals=equals)}"
        if negated:
            raise UsageError(
                f"'{flag}' is for settings that are true or false; '{setting.name}' takes "
                f"{METAVARS[setting.kind]}: {_spelled(name[3:])} {METAVARS[setting.kind]}."
            )
        value = given if equals else _next(flag, METAVARS[setting.kind], waiting)
        return f"{setting.name}={_value(setting.kind, value, sweeps=sweeps)}"

    def _setting(self, flag: str, name: str) -> Setting | None:
        """Return the setting that a flag means; None if it means a condition or a size.

        Raises:
            UsageError: If it means none, or several.
        """
        name = "data.folder" if self.verb == "train" and name == "folder" else name
        meant = _meant(name, self.settings)
        if len(meant) > 1:
            spelled = " or ".join(map(_spelled, meant))
            raise UsageError(f"'{flag}' may mean several settings; write {spelled}.")
        if meant and not self._is_condition_first(name, meant[0]):
            return next(setting for setting in self.settings if setting.name == meant[0])
        if self._is_open(name):
            return None
        raise UsageError(self._unknown(flag, name))

    def _is_condition_first(self, name: str, setting: str) -> bool:
        return setting.startswith(("wanted.", "plan.")) and name in {*self.conditions()} - {setting}

    def _is_open(self, name: str) -> bool:
        if self.verb != "sample":
            return False
        return name.startswith(("conditions.", "sizes.")) or name in self.conditions()

    def _plain(self, word: str) -> str:
        key, equals, value = word.partition("=")
        if self.verb != "sample" or not equals or not re.fullmatch(r"\w+(\.\w+)?", key):
            return word
        meant = _meant(key, self.settings)
        if meant and not self._is_condition_first(key, meant[0]):
            return f"{meant[0]}={value}" if len(meant) == 1 else word
        if key.startswith("hydra."):
            return word
        if self._is_open(key):
            return f"++{_open_key(key)}={value}"
        settings, conditions = [setting.name for setting in self.settings], self.conditions()
        near = did_you_mean(key, [*settings, *conditions])
        raise ConfigError(
            f"'{key}' is no setting and no condition of the checkpoint."
            f"{_asked_instead(key, conditions) or near} "
            f"Its conditions: {', '.join(conditions) or 'none'}."
        )

    def _unknown(self, flag: str, name: str) -> str:
        elsewhere = [
            f"{group}={option}"
            for group in GROUPS[self.verb]
            if group != "experiment"
            for option in options_of(group)
            if _meant(name, settings_of(config_dir() / group / f"{option}.yaml", f"{group}."))
        ]
        if elsewhere:
            group, _, option = elsewhere[0].partition("=")
            return f"'{flag}' is a setting of {' and '.join(elsewhere)}: add --{group} {option}."
        leaves = [s.name.rpartition(".")[2] for s in self._whole_tree()]
        conditions = self.conditions() if self.verb == "sample" else ()
        known = [s.name for s in self.settings] + leaves + [*GROUPS[self.verb], *conditions]
        near = _asked_instead(name, conditions) or did_you_mean(
            _spelled(name), dict.fromkeys(map(_spelled, known))
        )
        return (
            f"'layerdag {self.verb}' does not take '{flag}'.{near} "
            f"'layerdag {self.verb} --help' shows what it takes."
        )

    def _whole_tree(self) -> Iterator[Setting]:
        every = {group: ",".join(options_of(group)) for group in GROUPS[self.verb]}
        yield from settings_of_verb(self.verb, every)


def value_in(words: Sequence[str], *names: str) -> str | None:
    """Return the last value that words give a name, as a flag or with "="; None without one.

    Args:
        words: Of a command.
        *names: As Hydra spells them, one as good as the other.
    """
    found = None
    for word, following in zip(words, [*words, ""][1:], strict=True):
        key, equals, value = word.partition("=")
        is_flag = key.startswith("--")
        name = key[2:].replace("-", "_") if is_flag else key.lstrip("+")
        if name in names and (equals or is_flag):
            found = (value if equals else following).strip("'\"")
    return found


def _asked_instead(name: str, conditions: Sequence[str]) -> str:
    from layerdag.schema.plan_tables import asked_instead  # heavy, and needed for a mistake only

    return asked_instead(name, conditions)


def _open_key(name: str) -> str:
    return name if name.startswith(("conditions.", "sizes.")) else f"conditions.{name}"


def _next(flag: str, metavar: str, waiting: list[str]) -> str:
    """Take the value of a flag from the words that wait.

    Raises:
        UsageError: If there is none.
    """
    if not waiting or (waiting[0].startswith("-") and not re.match(r"-[\d.]", waiting[0])):
        raise UsageError(f"'{flag}' needs a value: {flag} {metavar}.")
    return waiting.pop(0)


def _truth(flag: str, given: str, waiting: list[str], *, negated: bool, equals: str) -> str:
    """Return "true" or "false", as ``--flag``, ``--no-flag`` and ``--flag=false`` say.

    Raises:
        UsageError: If a value is given to ``--no-flag``.
    """
    if not equals and not negated and waiting and waiting[0] in ("true", "false", "null"):
        return waiting.pop(0)
    if negated and equals:
        raise UsageError(f"'{flag}' takes no value; leave '={given}' out.")
    return given if equals else str(not negated).lower()


def _value(kind: str, text: str, *, sweeps: bool) -> str:
    """Return the value of a flag as Hydra's grammar writes it: texts are quoted, lists in brackets.

    Several values of a sweep, and what refers to other settings, stay as they are.
    """
    if "${" in text or text == "null" or (sweeps and "," in text) or text[:1] in ("'", '"', "["):
        return text
    if kind == "list":
        return text if text == "all" else "[" + ",".join(map(_quoted, text.split(","))) + "]"
    if kind in ("text", "path"):
        return quoted(text)
    return text if kind == "map" else _quoted(text)


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[\w./:+-]+", text) else quoted(text)


def quoted(text: str) -> str:
    """Return a text in quotes; inside them a backslash is plain unless a quote follows it."""
    return "'" + re.sub(r"(\\*)('|$)", _escaped, text) + "'"


def _escaped(end: "re.Match[str]") -> str:
    return end[1] * 2 + ("\\'" if end[2] else "")


WIDTH = 100
"""Columns of a paragraph of any help."""

_LONGEST_DEFAULT = 16


@dataclass(frozen=True)
class _Verb:
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
        "commas, with --multirun: one run for each. --strict trains nothing and exits with 1 if "
        "anything in the graphs was not understood. --json prints JSON on standard output instead "
        "of text.",
    ),
    "sample": _Verb(
        "Sample graphs or execution traces from a checkpoint. Writes one file or folder per sample "
        "and a manifest with seeds and settings.",
        "  layerdag sample family=gpt --data 4 --num 4 --out samples\n"
        "  layerdag sample --checkpoint public --depth 24 --parameters 350e6 --data 8 --num 2\n"
        "  layerdag sample --checkpoint outputs/mine/best --num 100 --label 0.02 --overwrite",
        "Every setting is a flag, --name VALUE or --name=VALUE (--no-name for what is true or "
        "false), or a word, name=VALUE. So is every condition of the checkpoint: family=gpt or "
        "--family gpt. --json prints JSON on standard output instead of text.",
    ),
}
VERBS_WITH_SETTINGS = tuple(_VERBS)

STRICT = "--strict"
"""Of ``train``, and no setting: a run that goes on with another one takes its settings alone."""


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
    flags += [STRICT, JSON] if verb == "train" else [JSON]
    return list(dict.fromkeys(flags))


def _file(group: str, option: str) -> Path:
    return config_dir() / group / f"{option}.yaml"


def _about(group: str, option: str) -> str:
    lines = _file(group, option).read_text(encoding="utf-8").splitlines()
    return " ".join(line[2:] for line in lines if line[:1] == "#" and not line.startswith("# @"))


def _title(group: str, option: str, *, is_default: bool, of: int) -> str:
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
    flag = flag_of(setting, every)
    if setting.kind == "bool":
        return f"--[no-]{flag[2:]}"
    return f"{flag} {METAVARS[setting.kind]}"


def _shown(default: str) -> str:
    if default == "???":
        return "required"
    if len(default) > _LONGEST_DEFAULT and default.startswith("["):
        return f"{default[: _LONGEST_DEFAULT - 3].rpartition(',')[0]},...]".replace(" ", "")
    return "" if "${" in default else default
