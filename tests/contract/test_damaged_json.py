"""What is wrong in a JSON or YAML file is told in the file's words, not in Python's."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from json_files import FILES, NOT_READERS, READERS, JsonFile, damages, doubled

from layerdag.errors import LayerdagError

PACKAGE = Path(__file__).resolve().parents[2] / "layerdag"
_PYTHON = re.compile(
    r"\b[A-Z]\w*(Error|Exception)\b|NoneType|Traceback|<class|object is not|has no attribute"
    r"|'(dict|list|str|int|float|bool)'|not (iterable|subscriptable|callable)|unhashable|unpack"
    r"|(positional|keyword) argument|literal for int|could not convert|must be str|indices must"
    r"|must be (a )?real number|__\w+__|sequence element"
)


@pytest.fixture(scope="module", params=FILES, ids=str)
def kind(request) -> JsonFile:
    return request.param


@pytest.fixture(scope="module")
def written(kind, tmp_path_factory) -> Path:
    return kind.write(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def path(written) -> Iterator[Path]:
    """Return a sound file, which a test may change."""
    sound = written.read_text()
    yield written
    written.write_text(sound)


def test_a_damaged_file_is_refused_in_plain_words(kind, path):
    sound = path.read_text()
    kind.read(path)
    wrong, refused = [], 0
    for what, document in damages(json.loads(sound)):
        path.unlink()  # to write over a file is five times as slow
        path.write_text(json.dumps(document))
        try:
            kind.read(path)
        except LayerdagError as error:
            refused += 1
            if _PYTHON.search(str(error)) or "\n" in str(error):
                wrong.append(f"{what}: {error}")
        except Exception as error:
            wrong.append(f"{what}: {error!r}")
    assert not wrong, "\n".join([f"{len(wrong)} of {kind}", *wrong[:40]])
    assert refused


INSIDE_EVENTS = {"host trace", "profile"}
"""Of the objects in a list of these the last name counts, as for PyTorch's own readers."""


def test_a_name_that_stands_twice_in_an_object_is_told_or_refused(kind, path):
    before = getattr(kind.read(path), "notes", ())
    silent = []
    for where, text in doubled(json.loads(path.read_text())):
        path.unlink()
        path.write_text(text)
        try:
            told = getattr(kind.read(path), "notes", ()) != before
        except LayerdagError as error:
            told = "twice" in str(error)
        if not told and not (kind.name in INSIDE_EVENTS and len(where) > 1):
            silent.append(str(where))
    assert not silent, f"{len(silent)} of {kind}: {silent[:20]}"


def test_every_reader_of_json_or_yaml_has_a_file():
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\bjson\.loads\b|\bparse_json[(,]|\bload_yaml\w*\(", path.read_text())
    }
    assert found == READERS.keys() | NOT_READERS.keys()
    assert {kind.name for kind in FILES} == {name for names in READERS.values() for name in names}
