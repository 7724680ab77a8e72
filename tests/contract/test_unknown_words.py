"""Every reader tells every kind of word that it does not know.

The table of inputs is in ``tests/helpers/unknown_words``. A reader that notes a kind without a case
fails here, and so does a reader of CSV, XML or binary files that has no case at all. Readers of
JSON and YAML have a sound file each (``test_damaged_json.py``), of which a key that no file has is
told or refused here.
"""

import ast
import importlib
import json
import pkgutil
import re
from pathlib import Path

import pytest
from json_files import FILES

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
def test_an_unknown_word_is_told(case, tmp_path):
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


_READS = re.compile(r"\bcsv\.(reader|DictReader)\(|\biterparse\b|\bexpat\b|\.ParquetFile\(")

NO_WORDS = {
    "publication/pages.py": "the table that a release has just written",
    "runtime/tables.py": "whoever reads a table says what becomes of its other columns",
    "samples/table.py": "parts that sample wrote, whose index names what they hold",
}
"""Why other readers of CSV, XML or Parquet have no case."""


def test_every_reader_of_tables_and_xml_has_a_case():
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if _READS.search(path.read_text())
    }
    assert found - {case.reader for case in CASES} == NO_WORDS.keys()


ANY_KEYS = {
    "labels": "names of graphs; those without a graph are told where a folder is read",
    "host trace": "PyTorch says there when it was taken; read up to the nodes",
    "profile": "the Trace Event Format allows any metadata",
    "durations": "the Trace Event Format allows any metadata",
    "settings of a run": "settings, which are looked at when they are used",
    "figures of a report": "figures, which are shown as they are",
    "entry of a sample": "written with the version of its form, which is looked at first",
    "manifest": "written with the version of its form, which is looked at first",
}
"""Why a key that no file has passes in others."""


@pytest.mark.parametrize("kind", [each for each in FILES if each.name not in ANY_KEYS], ids=str)
def test_a_key_that_no_file_has_is_told_or_refused(kind, tmp_path):
    path = kind.write(tmp_path)
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "unheard_of": "spam"}))
    try:
        told = [note.word for note in getattr(kind.read(path), "notes", ())]
    except LayerdagError as error:
        told = re.findall("unheard_of", str(error))
    assert "unheard_of" in told


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
