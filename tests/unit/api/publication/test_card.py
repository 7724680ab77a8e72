"""The data card has what Croissant and its responsible-AI fields require."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from layerdag.api.publication import ReleaseSettings
from layerdag.api.publication._card import data_card
from layerdag.api.publication._page import CAVEATS, SAMPLES_ALONE
from layerdag.evaluation.metrics import Interval

COLUMNS = ["name", "nodes", "edges", "ranks", "label"]
# Croissant 1.0, "Dataset-level information": required properties.
REQUIRED = ("@context", "@type", "conformsTo", "description", "license", "name", "url",
    "creator", "datePublished", "citeAs", "version", "distribution", "recordSet")  # fmt: skip


def card(tmp_path: Path, kind: str = "trace", license_: str = "CC-BY-4.0", **more: Any) -> Any:
    (tmp_path / "traces").mkdir(exist_ok=True)
    (tmp_path / "samples.csv").write_text(",".join(COLUMNS) + "\n")
    plain: dict[str, Any] = {
        "settings": ReleaseSettings(tmp_path / "traces", tmp_path / "out", license=license_),
        "jobs": SimpleNamespace(kind=kind),
        "kept": (1, 2, 3),
        "verdict": SimpleNamespace(line="The samples may be published: all is well."),
        "drawn": SimpleNamespace(price=1.25),
        "evaluation": None,
        "gives_weights": False,
    }
    return data_card(SimpleNamespace(**{**plain, **more}), tmp_path, COLUMNS)


def test_what_the_specification_requires_is_there(tmp_path: Path) -> None:
    made = card(tmp_path)
    assert all(made[name] for name in REQUIRED)
    assert made["@type"] == "sc:Dataset"
    assert made["conformsTo"] == [
        "http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"
    ]  # fmt: skip
    json.dumps(made, allow_nan=False)


def test_every_prefix_that_it_uses_is_declared(tmp_path: Path) -> None:
    made = card(tmp_path)
    used = {name.split(":")[0] for name in made if ":" in name}
    assert used == {"rai"}
    for prefix in (*used, "cr", "sc", "dct"):
        assert made["@context"][prefix].startswith("http")


def test_the_table_can_be_checked_by_its_hash(tmp_path: Path) -> None:
    table, files = card(tmp_path)["distribution"]
    data = (tmp_path / "samples.csv").read_bytes()
    assert table["sha256"] == hashlib.sha256(data).hexdigest()
    assert table["contentSize"] == f"{len(data)} B"
    assert table["contentUrl"] == "samples.csv"
    assert files["includes"] == "samples/*/*.et"


@pytest.mark.parametrize(
    ("kind", "name", "pattern", "encoding"),
    [
        ("trace", "synthetic-execution-traces", "samples/*/*.et", "application/octet-stream"),
        ("flow", "synthetic-flow-graphs", "samples/*.graphml", "application/xml"),
    ],
)
def test_traces_and_flow_graphs_are_files_of_their_own_kind(
    tmp_path: Path, kind: str, name: str, pattern: str, encoding: str
) -> None:
    made = card(tmp_path, kind)
    files = made["distribution"][1]
    assert (made["name"], files["includes"], files["encodingFormat"]) == (name, pattern, encoding)
    assert made["description"].startswith("3 synthetic ")
    assert "all is well" in made["description"]


def test_records_are_the_columns_of_the_table(tmp_path: Path) -> None:
    [records] = card(tmp_path)["recordSet"]
    assert [field["name"] for field in records["field"]] == COLUMNS
    types = {field["name"]: field["dataType"] for field in records["field"]}
    assert {name for name, kind in types.items() if kind == "sc:Integer"} == {
        "nodes", "edges", "ranks"
    }  # fmt: skip
    assert records["key"]["@id"] == records["field"][0]["@id"]
    for field in records["field"]:
        source = field["source"]
        assert source["fileObject"]["@id"] == "samples.csv"
        assert source["extract"]["column"] == field["name"]


def test_a_license_is_what_the_owner_said_or_nothing(tmp_path: Path) -> None:
    assert card(tmp_path)["license"] == "CC-BY-4.0"
    assert "license" not in card(tmp_path, license_="")


def test_limits_and_attacks_are_told(tmp_path: Path) -> None:
    attack = SimpleNamespace(
        name="nearest", auc=0.5321, interval=Interval(0.45, 0.61), in_words=lambda: "at chance"
    )
    read = SimpleNamespace(
        name="family", of_training=0.5, of_held_out=0.4, in_words=lambda: "no more than chance"
    )
    last = SimpleNamespace(attacks=(attack,), inferences=(read,))
    leaks = (SimpleNamespace(attacks=(), inferences=()), last)
    made = card(tmp_path, evaluation=SimpleNamespace(leaks=leaks))
    assert made["rai:dataLimitations"] == [*CAVEATS, SAMPLES_ALONE]
    assert card(tmp_path, gives_weights=True)["rai:dataLimitations"] == list(CAVEATS)
    assert "nearest: area 0.53 [0.45, 0.61], at chance" in made["rai:dataPreprocessingProtocol"][0]
    assert (
        "family: 50.0% of training graphs, 40.0% of held-out graphs, no more than chance"
        in (made["rai:dataPreprocessingProtocol"][0])
    )
    assert "1.2 drawn for each one kept" in made["rai:dataManipulationProtocol"]
    untold = card(tmp_path)["rai:dataPreprocessingProtocol"][0]
    assert "no membership attack could be run" in untold
