"""``layerdag <verb>``: dispatch, help, process setup, exit codes.

A command that cannot go on prints one sentence, never a bare traceback; ``LAYERDAG_TRACEBACK=1`` in
the environment shows the traceback above it. Exit codes: 0 fine, 1 the data is invalid, 2 the
command is wrong, 70 a fault of layerdag itself, 130 and 143 stopped by the keyboard or by SIGTERM.

A verb is one module of ``layerdag.cli.commands`` with ``SUMMARY``, ``EXAMPLE``,
``configure(parser)`` and ``run(args) -> int``; it is imported only when called, so that
``layerdag info`` does not wait for torch.
"""

import argparse
import atexit
import contextlib
import gc
import importlib
import os
import signal
import sys
import textwrap
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

from layerdag.cli.flags import VERBS_WITH_SETTINGS, WIDTH, flags_of_verb, help_text
from layerdag.cli.printing import add_json
from layerdag.errors import LayerdagError, UsageError
from layerdag.runtime.settings import did_you_mean
from layerdag.runtime.terminal import escaped_output
from layerdag.version import __version__

INVALID, MISUSED, FAULTY = 1, 2, 70
"""Exit codes: the data or the machine will not do, the command is wrong, layerdag is wrong."""

TRACEBACK = "LAYERDAG_TRACEBACK"
# The machine, or data that no check foresaw; anything else is a fault of the program.
_FORESEEN = (OSError, MemoryError, OverflowError, RuntimeError)
_LONGEST = 2000


def report_error(error: Exception) -> int:
    """Print what is wrong as one line on standard error and return the exit code."""
    known = isinstance(error, (LayerdagError, *_FORESEEN))
    if not known or os.environ.get(TRACEBACK, "0") not in ("", "0"):
        traceback.print_exception(error)
    text = " ".join(_sentence(error).split())
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + " ..."
    print(f"layerdag: error: {text}", file=sys.stderr)
    if isinstance(error, UsageError):
        return MISUSED
    return INVALID if known else FAULTY


def _sentence(error: Exception) -> str:
    if isinstance(error, LayerdagError):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}. Check the path, its permissions and free space."
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return (
            f"There is not enough memory ({_reason(error)}); give a smaller input, fewer or "
            "smaller graphs at a time, or more memory."
        )
    if isinstance(error, OverflowError):
        return f"A number is too large to be worked with ({_reason(error)}); check the input."
    if isinstance(error, RecursionError):
        return "Values are nested too deeply; check the input."
    if isinstance(error, RuntimeError):
        return (
            f"{_reason(error)}. If the input is sound, this is a fault of layerdag: run it again "
            f"with {TRACEBACK}=1 and report the lines and the command."
        )
    return (
        f"{_reason(error)}. This is a fault of layerdag, not of your input: please report the "
        "lines above and the command."
    )


def _reason(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


# Turns of a waiting thread before it sleeps (docs/dev/decisions.md, "Threads"): training
# is as fast as with OpenMP's own 300,000 on a quiet machine, and not ruined by other work.
_TURNS = "10000"
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def limit_openmp_spin() -> None:
    """Let the threads of GNU OpenMP spin for some microseconds when they wait, then sleep.

    To be called before the first import of torch, which reads the setting; later,
    `layerdag.runtime.native.set_openmp_passive` does it. What the user has set stands.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in _WAITING):
        os.environ["GOMP_SPINCOUNT"] = _TURNS


def silence_torch() -> None:
    """Keep PyTorch's C++ warnings about refused calls from the screen; before torch is imported.

    Programs are checked by trying their calls, and our own sentences say what is refused.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def single_threaded_blas(*, mkl: bool = True) -> None:
    """Keep numpy from starting a pool of threads when it is imported, which costs 0.05 s.

    To be called before the first import of numpy, by verbs that multiply no matrices with it. What
    the user has set stands. ``mkl`` also sets the number of threads of torch.
    """
    if "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        if mkl:
            os.environ.setdefault("MKL_NUM_THREADS", "1")


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Switch garbage collection off inside, and when the process ends.

    For a verb that makes no cycles and ends soon, or until it calls `resume_gc`: searching the
    modules and arrays that it loads takes a fifth of the time of a short run.
    """
    atexit.register(gc.freeze)
    was_on, thresholds = gc.isenabled(), gc.get_threshold()
    gc.disable()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if was_on:
            gc.enable()


_OBJECTS_BETWEEN_SEARCHES = 20_000
"""With Python's own number, runs with many objects and few cycles take a twentieth longer."""


def resume_gc() -> None:
    """Switch garbage collection on again, but never among the objects that exist by now."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(_OBJECTS_BETWEEN_SEARCHES)
        gc.enable()


def report_progress(line: str) -> None:
    """Print a line on what happens, on standard error; results alone go to standard output."""
    print(f"layerdag: {line}", file=sys.stderr, flush=True)


INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
"""Conventional exit codes of a process that a signal stopped."""


class Terminated(KeyboardInterrupt):
    """The process got SIGTERM."""


def exit_code(stop: KeyboardInterrupt) -> int:
    """Return the exit code of a process that was stopped."""
    return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


@contextlib.contextmanager
def terminating() -> Iterator[None]:
    """Raise ``Terminated`` on SIGTERM inside the block (in the main thread; elsewhere nothing)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


COMMAND_GROUPS = {
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
        "program": "Record a model's operators and sizes; resize, run and print the program.",
        "accuracy": "Hold predicted training steps against measured ones.",
        "explore": "Simulate models under many plans on many clusters: fit, time and cost.",
    },
    "simulation": {
        "simulate": "Run a workload on a described cluster.",
        "calibrate": "Fit a machine to steps that you measured, to predict others.",
        "sweep": "Simulate many workloads on many clusters; speed-ups and Pareto front.",
        "serving": "Simulate an LLM serving engine: latencies, throughput, goodput.",
        "rankings": "Do samples order clusters, plans and jobs as real jobs do?",
    },
    "models": {
        "train": "Train a generator on graphs or traces (the same as train.py).",
        "sample": "Sample synthetic workloads or graphs from a checkpoint (the same as sample.py).",
        "compare": "Compare samples of any generator with real graphs: V.U.N. and distances.",
        "surrogate": "Fit and use models that predict performance from a graph.",
        "audit": "Attack samples: what do they give away of what was trained on?",
        "release": "Make a package from your traces that you may publish, with a verdict.",
        "demo": "Run the main job end to end on the embedded corpus and write a report.",
    },
}
"""Every verb with what it does, by its room in ``layerdag.cli.commands``."""

_TITLES = {
    "traces": "traces and graphs",
    "workloads": "workloads without a cluster",
    "simulation": "simulated clusters",
    "models": "generators and surrogates",
}
ROOM_OF = {verb: group for group, verbs in COMMAND_GROUPS.items() for verb in verbs}
# Verbs that compute with torch on several threads; others run programs of the user (collect).
_WITH_THREADS = ("train", "surrogate", "validate", "audit", "release", "compare")
# Verbs that multiply no matrices with numpy; processes that draw samples are copies of one that has
# one thread.
_WITHOUT_POOL = ("simulate", "workload", "explore", "serving", "rankings", "calibrate", "sweep",
                 "accuracy", "sample")  # fmt: skip
# Verbs that end soon, or call `resume_gc`.
_WITHOUT_GC = ("simulate", "workload", "explore", "serving", "train", "sample", "demo", "release")
# First words after a verb that make it another one, with flags of its own.
MODES = {"workload": ("stage",)}
_WITHOUT_JSON = ("surrogate",)  # its actions have the flag
_EXIT_CODES = "exit codes: 0 fine, 1 invalid data, 2 wrong use, 70 a fault of layerdag."


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the bare command, which has the verbs but not their flags."""
    listing = "\n\n".join(
        "\n".join([f"{_TITLES[group]}:", *(f"  {verb:<10} {text}" for verb, text in verbs.items())])
        for group, verbs in COMMAND_GROUPS.items()
    )
    parser = argparse.ArgumentParser(
        prog="layerdag",
        usage="layerdag <verb> [options]",
        description="Generate, evaluate and use synthetic execution traces and flow graphs.",
        epilog=f"{listing}\n\n"
        "example:\n  layerdag workload gpt2 --data 2 --out traces/gpt2\n"
        "  layerdag info traces/gpt2\n\n"
        "'layerdag <verb> --help' shows the options of a verb with an example.\n" + _EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"layerdag {__version__}")
    parser.add_argument("verb", choices=ROOM_OF, metavar="verb", help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    if "_ARGCOMPLETE" in os.environ:
        return _complete(os.environ["COMP_LINE"])
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    # Names in files of others are printed by every verb; none may command the terminal.
    with escaped_output():
        return _exit_code_of(arguments)


def _exit_code_of(arguments: list[str]) -> int:
    """Run a verb; say in one line why it ended early."""
    try:
        word = arguments[0] if arguments else "--help"
        if word not in ROOM_OF and not word.startswith("-"):
            raise UsageError(
                f"There is no verb '{word}'.{did_you_mean(word, ROOM_OF)} Known: "
                f"{', '.join(ROOM_OF)}. 'layerdag --help' explains them."
            )
        verb = build_parser().parse_args([word]).verb
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
        return report_error(error)


def _run(verb: str, arguments: list[str]) -> int:
    has_settings = verb in VERBS_WITH_SETTINGS
    if has_settings and {"-h", "--help"} & set(arguments):
        sys.stdout.write(help_text(verb))
        return 0
    silence_torch()
    if verb in _WITH_THREADS:
        limit_openmp_spin()
    if verb in _WITHOUT_POOL:
        single_threaded_blas(mkl=verb != "sample")
    name = [verb]
    if arguments[:1] and arguments[0] in MODES.get(verb, ()):
        name.append(arguments.pop(0))
    with gc_disabled() if verb in _WITHOUT_GC else contextlib.nullcontext():
        if has_settings:
            return int(_module_of(verb).main(arguments))
        command = _command_of(name)
        parser = _parser_of(name, command)
        return int(command.run(_parsed(parser, arguments)))


def _module_of(verb: str) -> ModuleType:
    return importlib.import_module(f"layerdag.cli.commands.{verb}")


def _command_of(name: Sequence[str]) -> Any:
    module = _module_of(name[0])
    return module.MODES[name[1]] if name[1:] else module


def _parser_of(name: Sequence[str], command: Any) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"layerdag {' '.join(name)}",
        description=textwrap.fill(command.SUMMARY, WIDTH),
        epilog=f"example:\n{command.EXAMPLE}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.configure(parser)
    if name[0] not in _WITHOUT_JSON:
        add_json(parser)
    return parser


def _complete(line: str) -> int:
    """Answer a shell in which ``register-python-argcomplete layerdag`` was run."""
    import argcomplete

    finished = line.split()[1:] if line[-1:].isspace() else line.split()[1:-1]
    parser, name = build_parser(), finished[:1] if finished[:1] and finished[0] in ROOM_OF else []
    if name and name[0] in VERBS_WITH_SETTINGS:
        parser = argparse.ArgumentParser(add_help=False)
        for flag in flags_of_verb(name[0]):
            parser.add_argument(flag)
    elif name:
        name += [word for word in finished[1:2] if word in MODES.get(name[0], ())]
        parser = _parser_of(name, _command_of(name))
        if len(name) == 1 and name[0] in MODES and len(finished) == 1:
            parser.add_argument("mode", choices=MODES[name[0]])
    os.environ["_ARGCOMPLETE"] = str(1 + len(name))  # words that the parser does not see
    argcomplete.autocomplete(parser)
    return 0


def _parsed(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """Return the flags of a verb; refuse a word that it does not take with the nearest flag."""
    if "" in arguments and parser.prog != "layerdag collect":  # whose script may take one
        before = arguments[arguments.index("") - 1] if arguments[0] else parser.prog
        raise UsageError(
            f"Behind '{before}' stands an empty word; write its value, or leave it out."
        )
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
