"""Every reader tells every kind of word that it does not know.

The table of inputs is in ``tests/helpers/unknown_words``. A reader that notes a kind without a case
fails here, and so does a reader of files that has no case at all.
"""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

from layerdag.errors import LayerdagError
from tests.helpers import unknown_words
from tests.helpers.unknown_words.case import UnknownWord

PACKAGE = Path(__file__).resolve().parents[2] / "layerdag"


def _cases() -> list[UnknownWord]:
    modules = [
        importlib.import_module(f"{unknown_words.__name__}.{found.name}")
        for found in pkgutil.iter_modules(unknown_words.__path__)
    ]
    return [case for module in modules for case in getattr(module, "CASES", ())]


CASES = _cases()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_unknown_word_is_told(case: UnknownWord, tmp_path: Path):
    refusal, told = "", []
    try:
        told = [(note.kind, note.word) for note in case.read(tmp_path)]
    except LayerdagError as error:
        refusal = str(error)
    assert (case.kind, case.word) in told or case.word in refusal, f"{told} {refusal}"


def _noted_kinds() -> dict[str, set[str]]:
    """Return the kinds of notes that each file of the package can make."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name == "runtime/notes.py":
            continue
        if "NoteKind" not in (text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "NoteKind"
            ):
                found.setdefault(name, set()).add(node.attr.lower())
    return found


def test_every_kind_that_a_reader_notes_has_a_case():
    covered: dict[str, set[str]] = {}
    for case in CASES:
        covered.setdefault(case.reader, set()).add(case.kind.value)
    missing = {
        name: sorted(kinds - covered.get(name, set()))
        for name, kinds in _noted_kinds().items()
        if kinds - covered.get(name, set())
    }
    assert not missing, f"add cases to tests/helpers/unknown_words: {missing}"
