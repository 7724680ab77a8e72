"""What is wrong in a JSON or YAML file is told in the file's words, not in Python's."""

import json
import re
from pathlib import Path

import pytest
from json_files import FILES, JsonFile, damages

from layerdag.errors import LayerdagError

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
