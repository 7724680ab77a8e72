"""What is wrong in a JSON or YAML file is told in the file's words, not in Python's."""

import json
import re
from pathlib import Path

import pytest
from json_files import FILES, NOT_READERS, READERS, JsonFile, damages

from layerdag.errors import LayerdagError

PACKAGE = Path(__file__).resolve().parents[2] / "layerdag"
_PYTHON = re.compile(
    r"\b[A-Z]\w*(Error|Exception)\b|NoneType|Traceback|<class|object is not|has no attribute"
    r"|'(dict|list|str|int|float|bool)'|not (iterable|subscriptable|callable)|unhashable|unpack"
    r"|(positional|keyword) argument|literal for int|could not convert|must be str|indices must"
    r"|must be (a )?real number|__\w+__|sequence element"
)


@pytest.mark.parametrize("kind", FILES, ids=str)
def test_a_damaged_file_is_refused_in_plain_words(kind: JsonFile, tmp_path: Path):
    path = kind.write(tmp_path)
    sound = path.read_text()
    kind.read(path)
    wrong, refused = [], 0
    for what, document in damages(json.loads(sound)):
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


def test_every_reader_of_json_or_yaml_has_a_file():
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\bjson\.loads\b|\bload_yaml\w*\(", path.read_text())
    }
    assert found == READERS.keys() | NOT_READERS.keys()
    assert {kind.name for kind in FILES} == {name for names in READERS.values() for name in names}
