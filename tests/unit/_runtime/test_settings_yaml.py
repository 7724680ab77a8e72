"""YAML from outside: plain values, bounded, and every fault is one of YAML."""

import pytest
import yaml

from layerdag._runtime import load_yaml, load_yaml_texts

BOTH = pytest.mark.parametrize("load", [load_yaml, load_yaml_texts])


def test_plain_values_are_made_and_texts_stay_texts() -> None:
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
def test_values_that_nest_too_deeply_are_refused(load, text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="nested too deeply"):
        load(text)


@BOTH
@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\0", "*nowhere", "? [a]\n: b"])
def test_what_is_no_yaml_is_refused(load, text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load(text)


@pytest.mark.parametrize(
    "text", ["a: 2024-13-45", "!!timestamp soon", "!!int x", "!!float x", "!!binary x"]
)
def test_a_value_that_its_type_does_not_have_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load_yaml(text)


def test_no_object_is_made_of_a_tag() -> None:
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
def test_anchors_that_repeat_each_other_are_counted_before_they_are_made(load) -> None:
    assert len(load(laughs(3))["a3"]) == 10
    with pytest.raises(yaml.YAMLError, match="more than 100,000 values; write no anchors"):
        load(laughs(30))


@BOTH
def test_a_value_that_contains_itself_is_refused(load) -> None:
    with pytest.raises(yaml.YAMLError, match="more than 100,000 values"):
        load("a: &x [*x]")


def test_a_key_that_stands_twice_is_named() -> None:
    with pytest.raises(yaml.YAMLError, match="key 'latency' stands twice"):
        load_yaml_texts("latency: 1\nbandwidth: 2\nlatency: 3\n")
    assert load_yaml_texts("a: {b: 1}\nb: 1\n") == {"a": {"b": "1"}, "b": "1"}
