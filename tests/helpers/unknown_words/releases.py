"""Traces of a release whose programs are too few to learn from."""

import json
import lzma
from collections.abc import Sequence
from pathlib import Path

from corpus_cut import EMBEDDED

from layerdag.programs.forward_program import Program
from layerdag.publication.settings import ReleaseSettings, read_jobs
from layerdag.runtime.notes import Note, NoteKind
from layerdag.traces.chakra.workload import write_workload
from unknown_words.case import UnknownWord


def _of_two_programs(folder: Path) -> Sequence[Note]:
    traces = folder / "traces"
    traces.mkdir()
    lines = lzma.decompress((EMBEDDED / "programs" / "mlp.jsonl.xz").read_bytes()).splitlines()
    for number, line in enumerate(lines[:2]):
        program = Program.from_json(json.loads(line)).named(f"run-{number}")
        write_workload(program.step().workload(), traces / program.name)
        program.save(traces / f"{program.name}.program.json")
    return read_jobs(ReleaseSettings(traces=traces, out=folder / "out")).notes


CASES = (
    UnknownWord(
        "publication/settings.py", NoteKind.OPERATOR, "2 distinct programs", _of_two_programs
    ),
)
