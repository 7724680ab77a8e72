"""YAML from outside: plain values, bounded, and every fault is one of YAML."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import yaml

from layerdag.errors import ConfigError, UsageError
from layerdag.runtime.settings import (
    build_settings,
    did_you_mean,
    flattened,
    grouped,
    load_yaml,
    load_yaml_texts,
    seconds_of,
)


def test_the_known_name_spelled_most_like_it_is_proposed():
    assert did_you_mean("corpsu", ["folder", "corpus", "dgrl"]) == " Did you mean 'corpus'?"


@pytest.mark.parametrize("known", [[], ["folder", "dgrl"]])
def test_nothing_is_proposed_where_nothing_is_alike(known):
    assert did_you_mean("xyzzy", known) == ""


@dataclass(frozen=True)
class Optimizer:
    rate: float = 0.1
    kind: Literal["adam", "sgd"] = "adam"


@dataclass(frozen=True)
class Run:
    optimizer: Optimizer = field(default_factory=Optimizer)
    draws: tuple[int, ...] = ()
    place: Path | None = None
    label: str | int | None = None


def test_a_nested_mapping_fills_the_tree_and_the_rest_has_its_default():
    made = build_settings(Run, {"optimizer": {"rate": 2}, "draws": [1, 2], "place": "x"})
    assert made == Run(Optimizer(2.0), (1, 2), Path("x"))
    assert isinstance(made.optimizer.rate, float)
    assert build_settings(Run, made) is made
    assert build_settings(Run, {"optimizer": Optimizer(3.0), "label": 4}).label == 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"optimzer": {}}, r"Unknown setting 'run\.optimzer'\. Did you mean 'run\.optimizer"),
        ({"rate": 1.0}, r"Unknown setting 'run\.rate'\. Did you mean 'run\.optimizer\.rate'"),
        ({"xyz": 1}, r"Unknown setting 'run\.xyz'\. Known: optimizer\.rate, optimizer\.kind, draw"),
        ({"optimizer": 3}, r"'run\.optimizer' must be a group of settings, found 3"),
        ({"optimizer": {"rate": "x"}}, r"'run\.optimizer\.rate' must be a number, found 'x'"),
        ({"optimizer": {"rate": True}}, r"'run\.optimizer\.rate' must be a number, found True"),
        ({"optimizer": {"kind": "adm"}}, r"'run\.optimizer\.kind' must be 'adam' or 'sgd', found"),
        ({"draws": [1, "x"]}, r"'run\.draws' must be a whole number, found 'x'"),
        ({"draws": 1}, r"'run\.draws' must be a list, each entry a whole number, found 1"),
        ({"label": 1.5}, r"'run\.label' must be a text or a whole number or null, found 1\.5"),
        ([1], r"'run' must be a group of settings, found \[1\]"),
    ],
)
def test_what_does_not_fit_is_one_sentence_with_its_place(values, message):
    with pytest.raises(ConfigError, match=message):
        build_settings(Run, values, "run")


def test_a_missing_setting_without_default_is_told():
    @dataclass(frozen=True)
    class Needy:
        folder: Path

    with pytest.raises(ConfigError, match=r"'data\.folder' is missing"):
        build_settings(Needy, {}, "data")


def test_groups_are_flattened_and_made_again():
    nested = {"a": {"b": 1, "c": {"d": [2]}}, "e": None}
    assert flattened(nested) == {"a.b": 1, "a.c.d": [2], "e": None}
    assert grouped(flattened(nested)) == nested


BOTH = pytest.mark.parametrize("load", [load_yaml, load_yaml_texts])


def test_plain_values_are_made_and_texts_stay_texts():
    text = "a: 1\nb: [0.5, yes, ~]\nc: {d: 2024-01-02}\n"
    found = load_yaml(text)
    assert found["a"] == 1
    assert found["b"] == [0.5, True, None]
    assert str(found["c"]["d"]) == "2024-01-02"
    texts = {"a": "1", "b": ["0.5", "yes", "~"], "c": {"d": "2024-01-02"}}
    assert load_yaml_texts(text) == texts
    assert load_yaml("") is None


@BOTH
@pytest.mark.parametrize("text", ["[" * 500, "- " * 500 + "x", "{" * 500])
def test_values_that_nest_too_deeply_are_refused(load, text):
    with pytest.raises(yaml.YAMLError, match="nested too deeply"):
        load(text)


@BOTH
@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\0", "*nowhere", "? [a]\n: b"])
def test_what_is_no_yaml_is_refused(load, text):
    with pytest.raises(yaml.YAMLError):
        load(text)


@pytest.mark.parametrize(
    "text", ["a: 2024-13-45", "!!timestamp soon", "!!int x", "!!float x", "!!binary x"]
)
def test_a_value_that_its_type_does_not_have_is_refused(text):
    with pytest.raises(yaml.YAMLError):
        load_yaml(text)


def test_no_object_is_made_of_a_tag():
    with pytest.raises(yaml.YAMLError, match="could not determine a constructor"):
        load_yaml("!!python/object/apply:os.getcwd []")
    assert load_yaml_texts("!!python/object/apply:os.getcwd []") == []


def laughs(levels: int) -> str:
    """Return a document of a few lines that stands for 10 to the ``levels`` values."""
    lines = ["a0: &a0 x"]
    for level in range(1, levels + 1):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    return "\n".join(lines)


@BOTH
def test_anchors_that_repeat_each_other_are_counted_before_they_are_made(load):
    assert len(load(laughs(3))["a3"]) == 10
    with pytest.raises(yaml.YAMLError, match="more than 100,000 values; write no anchors"):
        load(laughs(30))


@BOTH
def test_a_value_that_contains_itself_is_refused(load):
    with pytest.raises(yaml.YAMLError, match="more than 100,000 values"):
        load("a: &x [*x]")


@BOTH
@pytest.mark.parametrize("text", ["b: 1\na: 1\nb: 3\n", "a:\n- {b: 1, b: 2}\n"])
def test_a_key_that_stands_twice_is_named(load, text):
    with pytest.raises(yaml.YAMLError, match="key 'b' stands twice in the mapping of line"):
        load(text)
    assert set(load("a: {b: 1}\nb: 1\nc: [&x {a: 1}, *x]\n")) == set("abc")


@pytest.mark.parametrize(
    ("text", "seconds"), [("900", 900), ("15m", 900), ("1.5h", 5400), (" 2 MIN", 120), ("7s", 7)]
)
def test_times_are_numbers_with_a_unit(text, seconds):
    assert seconds_of(text, "--budget") == seconds


def test_another_text_is_refused_with_its_flag():
    with pytest.raises(UsageError, match="--budget is 'soon'"):
        seconds_of("soon", "--budget")
