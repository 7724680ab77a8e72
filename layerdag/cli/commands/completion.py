"""``layerdag completion``: a script by which a shell completes verbs, flags and file names."""

import argparse
import sys
from collections.abc import Mapping, Sequence

SUMMARY = "Print a script by which your shell completes verbs, flags and names of files."
EXAMPLE = (
    "  layerdag completion bash > ~/.local/share/bash-completion/completions/layerdag\n"
    '  eval "$(layerdag completion zsh)"                       (in ~/.zshrc)\n'
    "  layerdag completion fish > ~/.config/fish/completions/layerdag.fish"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="which shell the script is for")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from layerdag.cli.main import ROOM_OF, words_of_verb

    sys.stdout.write(_SCRIPTS[args.shell]({verb: words_of_verb(verb) for verb in ROOM_OF}))
    return 0


def _bash(words: Mapping[str, Sequence[str]]) -> str:
    cases = "\n".join(f'        {verb}) words="{" ".join(ws)}" ;;' for verb, ws in words.items())
    return f"""# layerdag completion bash
_layerdag() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{" ".join(words)} --help --version" -- "$word"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    case "$word" in
        -*) ;;
        *) COMPREPLY+=($(compgen -f -- "$word")) ;;
    esac
}}
complete -o filenames -F _layerdag layerdag
"""


def _zsh(words: Mapping[str, Sequence[str]]) -> str:
    return (
        "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
        + _bash(words)
    )


def _fish(words: Mapping[str, Sequence[str]]) -> str:
    lines = ["# layerdag completion fish"]
    for verb, known in words.items():
        lines.append(f"complete -c layerdag -f -n __fish_use_subcommand -a {verb}")
        seen = f"complete -c layerdag -n '__fish_seen_subcommand_from {verb}'"
        flags = [word[2:] for word in known if word.startswith("--")]
        plain = [word for word in known if not word.startswith("-")]
        lines += [f"{seen} -l {flag}" for flag in flags]
        lines += [f"{seen} -a '{' '.join(plain)}'"] if plain else []
    return "\n".join(lines) + "\n"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
