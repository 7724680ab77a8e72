"""Unknown words in compiled programs."""

from collections.abc import Callable, Sequence
from pathlib import Path

from layerdag.runtime.notes import Note, NoteKind
from layerdag.traces.hlo.parser import read_program
from tests.helpers.unknown_words.case import UnknownWord

FILE = "traces/hlo/walk.py"
KIND = "(tensor<4xf32>) -> tensor<4xf32>"


def module(body: str) -> Callable[[Path], Sequence[Note]]:
    """Return what reads a StableHLO module with these operations in its main function."""

    def read(folder: Path) -> Sequence[Note]:
        file = folder / "program.mlir"
        main = f"func.func @main(%a: tensor<4xf32>) {{\n{body}\nreturn\n}}"
        file.write_text(f'module {{\nsdy.mesh @devices = <["x"=2]>\n{main}\n}}\n')
        return read_program(file).notes

    return read


CASES = (
    UnknownWord(
        FILE, NoteKind.OPERATOR, "frobnicate", module(f'%r = "my.frobnicate"(%a) : {KIND}')
    ),
    UnknownWord(
        FILE,
        NoteKind.OPERATOR,
        "my_kernel",
        module(f"%r = stablehlo.custom_call @my_kernel(%a) : {KIND}"),
    ),
    UnknownWord(FILE, NoteKind.ATTRIBUTE, "sdy.mesh @devices", module("")),
    UnknownWord(
        "traces/hlo/program.py",
        NoteKind.DTYPE,
        "!my.float",
        module('%r = "my.made"() : () -> tensor<4x!my.float>'),
    ),
)
