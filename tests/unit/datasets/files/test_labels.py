import json

import pytest

from layerdag.datasets.files import read_labels
from layerdag.errors import DataError


def write(tmp_path, text: str, name: str = "labels.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_columns_of_numbers_become_numbers_and_others_categories(tmp_path):
    labels = read_labels(write(tmp_path, "name,label,device\na,1.5,cpu\nb,,gpu\n"))
    assert labels.conditions == {"a": {"label": 1.5, "device": "cpu"}, "b": {"device": "gpu"}}
    assert labels.splits == {}


def test_a_column_split_names_the_split(tmp_path):
    labels = read_labels(write(tmp_path, "name,label,split\na,1,train\nb,2,test\n"))
    assert labels.splits == {"a": "train", "b": "test"}
    assert labels.conditions["b"] == {"label": 2.0}


def test_json_may_hold_values_or_objects(tmp_path):
    text = json.dumps({"a": 2, "b": {"label": 3.5, "device": "cpu"}})
    labels = read_labels(write(tmp_path, text, "labels.json"))
    assert labels.conditions == {"a": {"label": 2.0}, "b": {"label": 3.5, "device": "cpu"}}


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("a,1\nb,2\n", "l.csv", "the first line must name the columns"),
        ("name,label\na,1\na,2\n", "l.csv", "'a' occurs twice"),
        ("name,label\na,1,9\n", "l.csv", "line 2 has not as many cells"),
        ("name,split\na,dev\n", "l.csv", "is of split 'dev'"),
        ("{", "l.json", "is no JSON"),
        ("[1]", "l.json", "must hold an object"),
        ('{"a": [1]}', "l.json", "no number and no string"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path, text, name, message):
    with pytest.raises(DataError, match=message):
        read_labels(write(tmp_path, text, name))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv: there is no such file"):
        read_labels(tmp_path / "none.csv")


def test_empty_cells_are_unknown_and_a_column_with_one_word_is_a_category(tmp_path):
    text = "\ufeffname,label,device\na,1.5,\nb, ,3\nc,2,cpu\n"
    labels = read_labels(write(tmp_path, text))
    assert labels.conditions["a"] == {"label": 1.5}
    assert labels.conditions["b"] == {"device": "3"}
    assert labels.conditions["c"] == {"label": 2.0, "device": "cpu"}


def test_labels_in_another_encoding_are_refused(tmp_path):
    (tmp_path / "l.csv").write_bytes(b"name,label\n\xff\xfe,1\n")
    with pytest.raises(DataError, match=r"l\.csv: the label file cannot be read"):
        read_labels(tmp_path / "l.csv")


def test_a_graph_in_a_folder_of_its_own_name_may_be_called_like_it(tmp_path):
    labels = read_labels(
        write(tmp_path, "name,label,split\na,1,train\nb/c,2,test\n")
    ).with_folders()
    assert labels.conditions["a/a"] == labels.conditions["a"] == {"label": 1.0}
    assert labels.splits["b/c/c"] == "test"
    own = read_labels(write(tmp_path, "name,label\na,1\na/a,2\n")).with_folders()
    assert own.conditions["a/a"] == {"label": 2.0}
