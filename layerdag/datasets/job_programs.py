"""The forward programs of the jobs in a folder: what is learned of traces that record arguments."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerdag.datasets.sources import JobSource, find_sources
from layerdag.errors import DataError, LayerdagError
from layerdag.graph.attributed_graph import AttributedGraph, size_conditions
from layerdag.graph.formats import program_json
from layerdag.programs.forward_program import Program
from layerdag.programs.sources import program
from layerdag.programs.validity import runs
from layerdag.runtime.notes import Note, NoteCollector, NoteKind
from layerdag.runtime.reading import read_whole
from layerdag.runtime.terminal import track
from layerdag.traces.chakra.workload import rank_files
from layerdag.traces.pytorch.forward_calls import ARGUMENT_WORDS
from layerdag.traces.trace import Workload

_UNTRAINED = ("program-loss", "program-parameters")


@dataclass(frozen=True, eq=False)
class ProgramOfJob:
    """The program of a job, or the reason why there is none that runs."""

    name: str
    program: Program | None
    reason: str = ""


def programs_in(folder: str | Path, *, training: bool = True) -> Iterator[ProgramOfJob]:
    """Yield the forward program of every job in a folder, after the files that cannot be read.

    It is the one that was recorded with a job's trace (``NAME.program.json``), or else that of the
    trace of its first rank, as PyTorch wrote it or as Chakra. With ``training`` a program must end
    in a loss that trains every parameter. Raises DataError if there is no such folder.
    """
    sources = find_sources(Path(folder))
    for line in sources.faulty:
        name, _, reason = line.partition(": ")
        yield ProgramOfJob(name, None, reason)
    for source in track(sources.found, "recording programs", len(sources.found)):
        yield program_of_job(source, training=training)


def program_of_job(source: JobSource, *, training: bool = True) -> ProgramOfJob:
    """Return the forward program of a job, or why it has none that runs."""
    try:
        made = replace(_recorded(source), name=source.name)
        findings = made.check(training=training)
    except LayerdagError as error:
        reason = str(error).splitlines()[0]
        return ProgramOfJob(source.name, None, _without_place(reason, source))
    lost = next((f for f in findings if not runs([f]) or f.rule.id in _UNTRAINED), None)
    if lost is None:
        return ProgramOfJob(source.name, made)
    return ProgramOfJob(source.name, None, _without_place(lost.sentence(), source))


def learned_sources(
    folder: Path, sources: Sequence[JobSource]
) -> tuple[Sequence[JobSource], tuple[str, ...], tuple[Note, ...]]:
    """Return the jobs of a folder as what is learned of them, reasons of others, and notes.

    That is the forward program of each trace that records the arguments of its operators. Jobs
    without a program beside others that have one are left out. Where no trace has a program, traces
    are learned as graphs, with a note on those that record arguments.
    """
    traces = [source for source in sources if source.is_trace]
    recorded = [source for source in traces if _records_arguments(source)]
    found = {source.name: program_of_job(source)
             for source in track(recorded, "recording programs", len(recorded))}  # fmt: skip
    reasons = {name: made.reason for name, made in found.items() if made.program is None}
    if len(reasons) == len(found):
        notes = NoteCollector(str(folder))
        for name, reason in reasons.items():
            effect = f"records arguments and has no program, so it is learned as a graph: {reason}"
            notes.add(NoteKind.OPERATOR, name, effect)
        return sources, (), notes.notes
    learned, left_out = list[JobSource](), list[str]()
    for source in sources:
        made = found.get(source.name)
        if not source.is_trace:
            learned.append(source)
        elif made is None or made.program is None:
            why = "it does not record arguments" if made is None else made.reason
            left_out.append(f"{source.name}: has no program to learn, as others have: {why}")
        else:
            learned.append(_program_source(source, made.program))
    return learned, tuple(left_out), ()


def all_record_arguments(folder: Path) -> bool:
    """Return whether every trace in a folder records the arguments of its operators.

    Raises:
        DataError: If there is no such folder.
    """
    return all(_records_arguments(s) for s in find_sources(folder).found if s.is_trace)


def _program_source(source: JobSource, made: Program) -> JobSource:
    def read() -> AttributedGraph:
        graph = program_json.program_graph(made.to_json(), source.name)
        return replace(graph, conditions={**graph.conditions, **size_conditions(graph.layer_N)})

    def traces() -> Workload:
        found = source.read()
        assert isinstance(found, Workload)
        return found

    what = f"program of {source.format}"
    return replace(source, read=read, format=what, is_trace=False, traces=traces)


def _records_arguments(source: JobSource) -> bool:
    if source.program is not None or source.hosts:
        return True
    if source.chakra is None:
        return False
    try:
        data = read_whole(rank_files(source.chakra)[0])
    except LayerdagError:
        return False  # told when the job is read
    return any(word in data for word in ARGUMENT_WORDS)


def _without_place(reason: str, source: JobSource) -> str:
    if source.chakra is not None and reason.startswith(str(source.chakra)):
        return reason.partition(": ")[2]
    places = (source.name, *map(str, source.hosts.values()), str(source.program))
    return next((reason.removeprefix(f"{p}: ") for p in places if reason.startswith(p)), reason)


def _recorded(source: JobSource) -> Program:
    if source.program is not None:
        return Program.load(source.program)
    if source.hosts:
        return program(source.hosts[min(source.hosts)])
    if source.chakra is not None:
        return program(rank_files(source.chakra)[0])
    raise DataError(
        f"is {source.format}, which does not state the arguments of its operators; a host "
        "trace of PyTorch does (ExecutionTraceObserver)."
    )
