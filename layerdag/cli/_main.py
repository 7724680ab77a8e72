"""``layerdag <verb>``: dispatch, help, exit codes.

Exit codes: 0 fine, 1 the data is invalid, 2 the command is wrong, 70 a fault of layerdag itself
(``faults``), 130 and 143 stopped by the keyboard or by SIGTERM (``stopping``). A verb is one module
of this package with ``SUMMARY``, ``EXAMPLE``, ``configure(parser)`` and ``run(args) -> int``;
imported only when called, so that ``layerdag info`` does not wait for torch.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from layerdag._runtime import did_you_mean
from layerdag._version import __version__
from layerdag.cli._faults import complain
from layerdag.cli._start import with_brief_spinning
from layerdag.cli._stopping import TERMINATED, exit_code, terminating
from layerdag.cli.settings import VERBS_WITH_SETTINGS, help_text
from layerdag.errors import UsageError

ROOMS = {
    "traces": {
        "collect": "Run a training script and write its execution trace, one file per rank.",
        "convert": "Convert traces and graphs between formats; scrub what may not be shared.",
        "info": "Count nodes, types, layers, communication and memory of traces.",
        "diff": "Align two traces, jobs or graphs and tell what differs.",
        "view": "Draw a trace or graph as picture, zoomable page or timeline.",
        "validate": "Check traces and graphs against the rules that consumers rely on.",
    },
    "workloads": {
        "workload": "Write the trace of a job you do not own, from a model's shape and a plan.",
        "capture": "Write the trace of a PyTorch model's step, without a device or a cluster.",
        "scale": "Write your own trace on more ranks or with more layers, by rules.",
        "explore": "Simulate models under many plans on many clusters: fit, time and cost.",
    },
    "simulation": {
        "simulate": "Run a workload on a described cluster.",
        "calibrate": "Fit a machine to steps that you measured, to predict others.",
        "sweep": "Simulate many workloads on many clusters; speed-ups and Pareto front.",
        "rankings": "Do samples order clusters, plans and jobs as real jobs do?",
    },
    "models": {
        "pack": "Write a folder of graphs as flat arrays, to train on more than memory holds.",
        "train": "Train a generator (Hydra overrides; the same as train.py).",
        "sample": "Sample synthetic workloads or graphs (Hydra overrides; the same as sample.py).",
        "surrogate": "Fit and use models that predict performance from a graph.",
        "audit": "Attack samples: what do they give away of what was trained on?",
        "release": "Make a package from your traces that you may publish, with a verdict.",
        "runs": "Compare the reports of several runs on one page.",
        "demo": "Run the main job end to end on the embedded corpus and write a report.",
    },
}
"""Every verb with what it does, by its room in ``layerdag.cli.verbs``."""

_TITLES = {
    "traces": "traces and graphs",
    "workloads": "workloads without a cluster",
    "simulation": "simulated clusters",
    "models": "generators and surrogates",
}
ROOM_OF = {verb: group for group, verbs in ROOMS.items() for verb in verbs}
# Verbs that compute with torch on several threads; others run programs of the user (collect).
_WITH_THREADS = ("train", "surrogate", "validate", "audit", "release")
# First words after a verb that make it another one, with flags of its own.
MODES = {"workload": ("stage", "corpus")}
_EXIT_CODES = "exit codes: 0 fine, 1 invalid data, 2 wrong use, 70 a fault of layerdag."


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the bare command, which has the verbs but not their flags."""
    listing = "\n\n".join(
        "\n".join([f"{_TITLES[group]}:", *(f"  {verb:<10} {text}" for verb, text in verbs.items())])
        for group, verbs in ROOMS.items()
    )
    parser = argparse.ArgumentParser(
        prog="layerdag",
        usage="layerdag <verb> [options]",
        description="Generate, evaluate and use synthetic execution traces and flow graphs.",
        epilog=f"{listing}\n\n"
        "example:\n  layerdag info data/examples/ddp_mlp\n\n"
        "'layerdag <verb> --help' shows the options of a verb with an example.\n" + _EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"layerdag {__version__}")
    parser.add_argument("verb", choices=ROOM_OF, metavar="verb", help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    try:
        _check_verb(arguments)
        verb = build_parser().parse_args(arguments[:1] or ["--help"]).verb
        with terminating():
            return _run(verb, arguments[1:])
    except KeyboardInterrupt as stop:
        code = exit_code(stop)
        by = "SIGTERM" if code == TERMINATED else "the keyboard"
        reason = f": {stop}" if str(stop) else ""
        print(f"layerdag: stopped by {by}{reason}", file=sys.stderr)
        return code
    except BrokenPipeError:
        # The reader (head, less) went away: not our error, and nothing more may be printed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return complain(error)


def _check_verb(arguments: Sequence[str]) -> None:
    """Refuse an unknown verb with the nearest one."""
    word = arguments[0] if arguments else "--help"
    if word not in ROOM_OF and not word.startswith("-"):
        raise UsageError(
            f"There is no verb '{word}'.{did_you_mean(word, ROOM_OF)} Known: {', '.join(ROOM_OF)}. "
            "'layerdag --help' explains them."
        )


def _run(verb: str, arguments: list[str]) -> int:
    """Import the verb, parse its flags (Hydra verbs parse their own) and run it."""
    has_settings = verb in VERBS_WITH_SETTINGS
    if has_settings and {"-h", "--help"} & set(arguments):
        sys.stdout.write(help_text(verb))
        return 0
    if verb in _WITH_THREADS:
        with_brief_spinning()
    name = [verb]
    if arguments[:1] and arguments[0] in MODES.get(verb, ()):
        name.append(arguments.pop(0))
    module = importlib.import_module(f"layerdag.cli.verbs.{ROOM_OF[verb]}._{'_'.join(name)}")
    if has_settings:
        return int(module.main(arguments))
    parser = argparse.ArgumentParser(
        prog=f"layerdag {' '.join(name)}",
        description=module.SUMMARY,
        epilog=f"example:\n{module.EXAMPLE}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.configure(parser)
    return int(module.run(_parsed(parser, arguments)))


def _parsed(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """Return the flags of a verb; refuse a word that it does not take with the nearest flag."""
    args, strange = parser.parse_known_args(arguments)
    if strange:
        flags = [flag for action in parser._actions for flag in action.option_strings]
        near = did_you_mean(strange[0].partition("=")[0], flags) if strange[0][:1] == "-" else ""
        raise UsageError(
            f"'{parser.prog}' does not take '{strange[0]}'.{near} '{parser.prog} --help' shows "
            "what it takes."
        )
    return args


if __name__ == "__main__":
    sys.exit(main())
