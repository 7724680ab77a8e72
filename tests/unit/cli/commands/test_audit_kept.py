"""Entries are found by content and code, and believed only if whole."""

import json
from pathlib import Path

import pytest

from layerdag.cli.commands.audit import MOST_KEPT, cached, code_hash, content_hash, key_of, store


@pytest.fixture(autouse=True)
def entries(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("LAYERDAG_CACHE", str(tmp_path / "entries"))
    return tmp_path / "entries"


@pytest.fixture
def folder(tmp_path) -> Path:
    inner = tmp_path / "data" / "inner"
    inner.mkdir(parents=True)
    (inner / "a").write_text("one")
    return tmp_path / "data"


def test_a_hash_is_that_of_names_and_contents_wherever_a_folder_lies(folder, tmp_path):
    before = content_hash(folder)
    moved = folder.rename(tmp_path / "moved")
    assert content_hash(moved) == before
    (moved / "inner" / "a").rename(moved / "inner" / "b")
    assert content_hash(moved) != before
    (moved / "inner" / "b").rename(moved / "inner" / "a")
    (moved / "inner" / "a").write_text("two")
    assert content_hash(moved) != before
    assert content_hash(tmp_path / "nothing") != content_hash(moved)


def test_a_key_depends_on_settings_files_and_code(folder, monkeypatch):
    keys = {key_of({"seed": seed}, paths) for seed in (0, 1) for paths in ([], [folder])}
    assert len(keys) == 4
    assert key_of({"seed": 0}, [folder]) in keys
    monkeypatch.setattr("layerdag.cli.commands.audit.code_hash", lambda: "another version")
    assert key_of({"seed": 0}, [folder]) not in keys
    assert len(code_hash()) == 64


def test_what_was_kept_is_found_again_by_its_owner_alone(entries):
    store("0" * 64, {"text": "figures"})
    assert cached("0" * 64) == {"text": "figures"}
    assert cached("1" * 64) is None
    assert entries.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-5],
        lambda text: text.replace("figures", "other"),
        lambda text: text.replace("layerdag-kept-1", "layerdag-kept-0"),
        lambda text: "[]",
        lambda text: json.dumps(json.loads(text) | {"result": None}),
        lambda text: "[" * 100_000,
    ],
)
def test_a_damaged_entry_is_none(entries, damage):
    store("0" * 64, {"text": "figures"})
    path = entries / f"{'0' * 64}.json"
    path.write_text(damage(path.read_text()))
    assert cached("0" * 64) is None


def test_old_entries_make_room(entries):
    for i in range(MOST_KEPT + 3):
        store(f"{i:064}", {"text": str(i)})
    assert len(list(entries.iterdir())) == MOST_KEPT
    assert cached(f"{MOST_KEPT + 2:064}") is not None


def test_a_folder_with_files_of_others_keeps_them_and_its_mode(entries):
    entries.mkdir(parents=True)
    entries.chmod(0o755)
    for i in range(MOST_KEPT + 3):
        (entries / f"figures-{i}.json").write_text("{}")
    for i in range(MOST_KEPT + 2):
        store(f"{i:064}", {"i": i})
    assert len(list(entries.glob("figures-*.json"))) == MOST_KEPT + 3
    assert len(list(entries.iterdir())) == 2 * MOST_KEPT + 3
    assert entries.stat().st_mode & 0o777 == 0o755
    assert (entries / f"{MOST_KEPT:064}.json").stat().st_mode & 0o777 == 0o600


def test_nothing_is_kept_where_that_is_switched_off_or_impossible(entries, monkeypatch):
    entries.write_text("a file where the folder would be")
    store("0" * 64, {"text": "figures"})
    monkeypatch.setenv("LAYERDAG_CACHE", "off")
    store("0" * 64, {"text": "figures"})
    assert cached("0" * 64) is None
    assert entries.is_file()
