"""Settings of ``layerdag train`` and ``sample`` on the command line: their flags, their ``--help``.

The YAML files in ``configs`` are the only declaration of a setting. ``--name value`` becomes
Hydra's ``group.name=value``. The files are read as text, since importing Hydra or torch would keep
everybody waiting who asks for help. What a setting takes follows from its default; where that is
null, or a text that is a path, its comment begins with the word: ``(int)``.
"""

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

import layerdag
from layerdag.cli.printing import JSON
from layerdag.errors import ConfigError, UsageError
from layerdag.runtime.settings import did_you_mean

GROUPS = {"train": ("data", "model", "training", "logger", "experiment"), "sample": ()}
"""Folders of ``configs`` of which each verb takes one file."""

METAVARS = {"int": "N", "float": "X", "text": "TEXT", "path": "PATH", "list": "A,B",
            "map": "{NAME:VALUE}", "bool": ""}  # fmt: skip
"""What a setting takes, as the help shows it."""

_KINDS = {int: "int", float: "float", str: "text", list: "list", dict: "map", bool: "bool"}
# A bare name is looked for in these groups, in this order.
_ORDER = ("training", "model", "logger", "data", "privacy", "conditions", "wanted", "plan")
_LINE = re.compile(
    r"(?P<indent> *)(?P<name>\w+):(?P<value>[^#\n]*)"
    r"(?:#\s*(?:\((?P<kind>int|float|bool|text|path|list)\) )?(?P<comment>.*))?"
)
_CHOSEN = re.compile(r"^  - (\w+): (\w+)", re.MULTILINE)
_HYDRA_VALUE = ("-c", "--cfg", "-p", "--package")
_HYDRA = (*_HYDRA_VALUE, "-m", "--multirun", "--resolve")
"""Hydra's own flags, and those of them that take a value."""


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
        default: As the file writes it.
        comment: May be empty.
        kind: What it takes, a key of ``METAVARS``.
    """

    name: str
    default: str
    comment: str
    kind: str


def settings_of(file: Path, prefix: str = "") -> list[Setting]:
    """Return the settings of a YAML file with those of its groups, without ``name``."""
    found: list[Setting] = []
    names: list[str] = []  # of the groups around the line, and its own
    for match in map(_LINE.match, file.read_text(encoding="utf-8").splitlines()):
        if match is None:
            continue
        names = [*names[: len(match["indent"]) // 2], match["name"]]
        value = match["value"].strip()
        if value and names[0] not in ("defaults", "hydra", "name"):
            kind = match["kind"] or _KINDS[type(yaml.safe_load(value))]
            found.append(Setting(prefix + ".".join(names), value, match["comment"] or "", kind))
    return found


def usual_choices(verb: str) -> dict[str, str]:
    """Return the file of each group that a verb takes by default."""
    return dict(_CHOSEN.findall((config_dir() / f"{verb}.yaml").read_text(encoding="utf-8")))


def options_of(group: str) -> list[str]:
    """Return the names of the files of a group."""
    folder = config_dir() / group
    return sorted(p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.yaml"))


def require_option(group: str, value: str) -> None:
    """Raise ConfigError unless a group has such a file."""
    options = options_of(group)
    if value not in options:
        raise ConfigError(
            f"There is no {group}={value}.{did_you_mean(value, options)} "
            f"Known: {', '.join(options)}."
        )


def settings_of_verb(verb: str, chosen: Mapping[str, str]) -> list[Setting]:
    """Return all settings of a verb, with those of the chosen file of each group.

    Args:
        verb: "train" or "sample".
        chosen: File of each group, or several with commas between them, as in a sweep.
    """
    found = settings_of(config_dir() / f"{verb}.yaml")
    for group, names in chosen.items():
        for name in names.split(",") if group != "experiment" else ():
            if _file(group, name).is_file():
                found += settings_of(_file(group, name), f"{group}.")
    return list({setting.name: setting for setting in reversed(found)}.values())[::-1]


def _file(group: str, option: str) -> Path:
    return config_dir() / group / f"{option}.yaml"


def flag_of(setting: Setting, settings: Sequence[Setting]) -> str:
    """Return the shortest flag that means a setting: ``--max-steps``, ``--encoder.dropout``."""
    parts = setting.name.split(".")
    ends = (".".join(parts[begin:]) for begin in reversed(range(len(parts))))
    return _spelled(next(end for end in ends if _meant(end, settings) == [setting.name]))


def _spelled(name: str) -> str:
    return "--" + name.replace("_", "-")


def _meant(name: str, settings: Sequence[Setting]) -> list[str]:
    """Return the settings that a name means: one, none, or several that have equal claims.

    A name in full comes first, then the end of a name: that of the first group that has it, and
    the outermost in that group.
    """
    names = [setting.name for setting in settings]
    if name in names:
        return [name]
    for group in _ORDER:
        ends = [n for n in names if n.startswith(f"{group}.") and n.endswith(f".{name}")]
        if ends:
            outermost = min(known.count(".") for known in ends)
            return [known for known in ends if known.count(".") == outermost]
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
            ConfigError: If a word of ``sample`` names no setting and no condition.
        """
        found: list[str] = []
        waiting = list(words)
        sweeps = bool({"-m", "--multirun"} & set(words))
        while waiting:
            word = waiting.pop(0)
            if word.partition("=")[0] in _HYDRA:
                found.append(word)
                if word in _HYDRA_VALUE and waiting and not waiting[0].startswith("-"):
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

        def value(metavar: str) -> str:
            if equals:
                return given
            if not waiting or re.match(r"-(?![\d.])", waiting[0]):
                raise UsageError(f"'{flag}' needs a value: {flag} {metavar}.")
            return waiting.pop(0)

        if name in GROUPS[self.verb]:
            return f"{name}={value('NAME')}"
        negated = name.startswith("no_") and not _meant(name, self.settings)
        setting = self._setting(flag, name.removeprefix("no_") if negated else name)
        if setting is None:
            return f"++{_open_key(name)}={_value('float', value('VALUE'), sweeps=sweeps)}"
        metavar = METAVARS[setting.kind]
        if setting.kind != "bool":
            if negated:
                raise UsageError(
                    f"'{flag}' is for settings that are true or false; '{setting.name}' takes "
                    f"{metavar}: {_spelled(name[3:])} {metavar}."
                )
            return f"{setting.name}={_value(setting.kind, value(metavar), sweeps=sweeps)}"
        if negated and equals:
            raise UsageError(f"'{flag}' takes no value; leave '={given}' out.")
        if not equals and not negated and waiting[:1] and waiting[0] in ("true", "false", "null"):
            given = waiting.pop(0)
        return f"{setting.name}={given or str(not negated).lower()}"

    def _setting(self, flag: str, name: str) -> Setting | None:
        """Return the setting that a flag means; None if it means a condition or a size."""
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
        return self.verb == "sample" and (
            name.startswith(("conditions.", "sizes.")) or name in self.conditions()
        )

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
        conditions = self.conditions()
        near = did_you_mean(key, [*(setting.name for setting in self.settings), *conditions])
        raise ConfigError(
            f"'{key}' is no setting and no condition of the checkpoint."
            f"{_asked_instead(key, conditions) or near} "
            f"Its conditions: {', '.join(conditions) or 'none'}."
        )

    def _unknown(self, flag: str, name: str) -> str:
        elsewhere = [
            (group, option)
            for group in GROUPS[self.verb]
            if group != "experiment"
            for option in options_of(group)
            if _meant(name, settings_of(_file(group, option), f"{group}."))
        ]
        if elsewhere:
            group, option = elsewhere[0]
            places = " and ".join(map("=".join, elsewhere))
            return f"'{flag}' is a setting of {places}: add --{group} {option}."
        conditions = self.conditions() if self.verb == "sample" else ()
        every = {group: ",".join(options_of(group)) for group in GROUPS[self.verb]}
        names = [setting.name for setting in self.settings]
        names += [s.name.rpartition(".")[2] for s in settings_of_verb(self.verb, every)]
        known = dict.fromkeys(map(_spelled, [*names, *GROUPS[self.verb], *conditions]))
        near = _asked_instead(name, conditions) or did_you_mean(_spelled(name), known)
        return (
            f"'layerdag {self.verb}' does not take '{flag}'.{near} "
            f"'layerdag {self.verb} --help' shows what it takes."
        )


def value_in(words: Sequence[str], *names: str) -> str | None:
    """Return the last value that words give a name, as a flag or with "="; None without one.

    Args:
        words: Of a command.
        *names: As Hydra spells them; any of them counts.
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
    return "'" + re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), text) + "'"


WIDTH = 100
"""Columns of a paragraph of any help."""

_MAX_DEFAULT = 16

_ABOUT = {
    "train": (
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
    "sample": (
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
"""Summary, example and notes of each verb whose settings are YAML files."""
VERBS_WITH_SETTINGS = tuple(_ABOUT)

STRICT = "--strict"
"""Of ``train``, and no setting: a run that goes on with another one takes its settings alone."""


def help_text(verb: str) -> str:
    """Return the help of a verb whose settings are YAML files."""
    summary, example, notes = _ABOUT[verb]
    parts = [
        f"usage: layerdag {verb} [--name VALUE ...] [name=VALUE ...]",
        textwrap.fill(summary, WIDTH),
        f"example:\n{example}",
        textwrap.fill(notes, WIDTH),
        *_sections(verb),
        "'--cfg job' prints the settings as they are composed; --dry-run checks them and stops.",
    ]
    return "\n\n".join(parts) + "\n"


def _sections(verb: str) -> Iterator[str]:
    usual = usual_choices(verb)
    file = config_dir() / f"{verb}.yaml"
    every, own = settings_of_verb(verb, usual), settings_of(file)
    plain = [setting for setting in own if "." not in setting.name]
    yield _section(f"settings of {verb}, with their defaults:", plain, every)
    for group in dict.fromkeys(s.name.partition(".")[0] for s in own if "." in s.name):
        about = re.search(rf"^{group}: *# *(.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
        inside = [setting for setting in own if setting.name.startswith(f"{group}.")]
        yield _section(f"{group}: {about[1] if about else ''}", inside, every)
    for group in usual:
        options = sorted(options_of(group), key=lambda option: option != usual[group])
        if group == "experiment":
            rows = [(option, "", _about(group, option)) for option in options]
            yield "\n".join(["--experiment NAME, NAME one of:", *_columns(rows)])
            continue
        for option in options:
            default = " (default)" if option == usual[group] else ""
            title = f"--{group} {option}{default}" if len(options) > 1 else group
            every = settings_of_verb(verb, {**usual, group: option})
            inside = settings_of(_file(group, option), f"{group}.")
            yield _section(f"{title}: {_about(group, option)}", inside, every)


def flags_of_verb(verb: str) -> list[str]:
    """Return every flag of a verb, whatever is chosen of its groups."""
    flags = [*(f"--{group}" for group in usual_choices(verb)), "--help", "--multirun", "--cfg"]
    for negatable, name in re.findall(r"^  --(\[no-\])?(\S+)", help_text(verb), re.MULTILINE):
        flags += [f"--{name}", f"--no-{name}"] if negatable else [f"--{name}"]
    flags += [STRICT, JSON] if verb == "train" else [JSON]
    return list(dict.fromkeys(flags))


def _about(group: str, option: str) -> str:
    lines = _file(group, option).read_text(encoding="utf-8").splitlines()
    return " ".join(line[2:] for line in lines if line[:1] == "#" and not line.startswith("# @"))


def _section(title: str, settings: Sequence[Setting], every: Sequence[Setting]) -> str:
    """Return a title and settings below it, in columns; flags are unique among ``every``."""
    rows = []
    for setting in settings:
        flag, default = flag_of(setting, every), setting.default
        shown = (
            f"--[no-]{flag[2:]}" if setting.kind == "bool" else f"{flag} {METAVARS[setting.kind]}"
        )
        if default == "???":
            default = "required"
        elif "${" in default:
            default = ""
        elif len(default) > _MAX_DEFAULT and default.startswith("["):
            default = f"{default[: _MAX_DEFAULT - 3].rpartition(',')[0]},...]".replace(" ", "")
        rows.append((shown, default, setting.comment))
    return "\n".join([textwrap.fill(title, WIDTH), *_columns(rows)])


def _columns(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Yield rows of three columns; what does not fit goes on below the last column."""
    first, second = (max((len(row[i]) for row in rows), default=0) for i in (0, 1))
    start = first + second + (6 if second else 4)
    for name, default, comment in rows:
        middle = f"{default:<{second}}  " if second else ""
        head, *rest = textwrap.wrap(comment, max(WIDTH - start, 40), break_on_hyphens=False) or [""]
        yield f"  {name:<{first}}  {middle}{head}".rstrip()
        yield from (" " * start + line for line in rest)
