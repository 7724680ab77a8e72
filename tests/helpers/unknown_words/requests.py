"""Files of requests to a serving engine."""

from collections.abc import Callable, Sequence
from pathlib import Path

from layerdag.runtime.notes import Note, NoteKind
from layerdag.serving.requests import read_requests
from unknown_words.case import UnknownWord

READER = "serving/requests.py"


def _requests(header: str, *rows: str) -> Callable[[Path], Sequence[Note]]:
    def told(folder: Path) -> Sequence[Note]:
        (folder / "r.csv").write_text("\n".join((header, *rows)) + "\n")
        return read_requests(folder / "r.csv").notes

    return told


_COLUMNS = "arrival_s,input_tokens,output_tokens"
CASES = (
    UnknownWord(READER, NoteKind.ATTRIBUTE, "user", _requests(f"{_COLUMNS},user", "0,1,1,ann")),
    UnknownWord(READER, NoteKind.SIZE, "0 tokens", _requests(_COLUMNS, "0,1,0", "0,1,1")),
)
