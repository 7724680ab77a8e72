"""Tables as people and spreadsheets write them."""

import codecs
import gzip

import pytest

from layerdag.dp.units import read_owners
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import read_labels
from layerdag.runtime.tables import iter_lines, read_table
from layerdag.serving.requests import read_requests

TEXT = "name,label\r\n a , 1.5 \r\n\r\n , \r\nb,2\r\n"
WRITTEN = {
    "UTF-8": TEXT.encode(),
    "UTF-8 with a mark": codecs.BOM_UTF8 + TEXT.encode(),
    "UTF-16 with a mark": TEXT.encode("utf-16"),
    "UTF-16, little end first": TEXT.encode("utf-16-le"),
    "UTF-16, big end first": TEXT.encode("utf-16-be"),
    "other line ends": TEXT.replace("\r\n", "\n").encode(),
    "gzip": gzip.compress(TEXT.encode("utf-16")),
}


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_a_table_reads_the_same_however_it_is_written(tmp_path, written):
    path = tmp_path / "t.csv"
    path.write_bytes(written)
    table = read_table(path, ("name",))
    assert table.columns == {"name": ["a", "b"], "label": ["1.5", "2"]}
    assert table.lines == (2, 5)
    assert list(iter_lines(path)) == [(1, ["name", "label"]), (2, ["a", "1.5"]), (5, ["b", "2"])]
    assert read_labels(path).conditions == {"a": {"label": 1.5}, "b": {"label": 2.0}}


def test_owners_and_requests_are_read_from_a_spreadsheet(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("graph,owner\n x , ann\n\ny,bob\n", "utf-16")
    assert read_owners(path, ["y", "x"]) == ["bob", "ann"]
    path.write_text("arrival_s, input_tokens ,output_tokens,model\n0, 3 ,4,m\n\n", "utf-16")
    found = read_requests(path)
    assert found.requests.input_tokens.tolist() == [3]
    assert [note.word for note in found.notes] == ["model"]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (b"", "the file is empty"),
        (b"nme,x\n", "Did you mean 'name'|Found are nme, x"),
        (b"name,x,x\na,1,2\n", "the column 'x' stands twice"),
        (b"name,x\na,1\nb\n", "line 3 has not as many cells"),
        (b"name\n\xff\xfe,\n", "is no text in UTF-8 or UTF-16"),
        (b"name\n" + b"a" * (1 << 21), "has a line of more than|is no CSV"),
    ],
)
def test_what_is_no_such_table_is_one_sentence(tmp_path, written, message):
    path = tmp_path / "t.csv"
    path.write_bytes(written)
    with pytest.raises(DataError, match=message):
        read_table(path, ("name",))
