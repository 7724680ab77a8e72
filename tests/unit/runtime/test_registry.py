"""Registries: names of this process and of entry points, and nothing else."""

from importlib import metadata
from importlib.metadata import EntryPoint

import pytest

from layerdag.errors import ConfigError, UsageError
from layerdag.runtime.registry import Registry


def check(name: str, value: object) -> None:
    if not callable(value):
        raise UsageError(f"{name} is not callable.")


@pytest.fixture
def things(monkeypatch: pytest.MonkeyPatch) -> Registry:
    points = [EntryPoint("hypot", "math:hypot", "t"), EntryPoint("pi", "math:pi", "t")]
    points.append(EntryPoint("gone", "no_such_module_at_all:x", "t"))
    found = {"t": points}
    monkeypatch.setattr(metadata, "entry_points", lambda group: found.get(group, []))
    return Registry("thing", "t", check, {"sqrt": "math:sqrt"})


def test_built_in_registered_and_installed_names(things):
    import math

    things.register("own", len)
    assert things.names() == ("sqrt", "own", "hypot", "pi", "gone")
    assert things.added() == ("own", "hypot", "pi", "gone")
    assert (things.get("sqrt"), things.get("own")) == (math.sqrt, len)
    assert things.get("hypot") is math.hypot
    things.unregister("own")
    with pytest.raises(ConfigError, match="There is no thing 'own'"):
        things.get("own")


def test_a_name_that_looks_like_code_imports_nothing(things):
    with pytest.raises(ConfigError, match="There is no thing 'os:system'"):
        things.get("os:system")


def test_entry_points_that_cannot_be_used_are_named(things):
    with pytest.raises(ConfigError, match="entry point no_such_module_at_all:x of 't'"):
        things.get("gone")
    with pytest.raises(ConfigError, match="pi is not callable"):
        things.get("pi")


def test_names_of_the_package_and_wrong_kinds_are_refused(things):
    with pytest.raises(UsageError, match="is one of layerdag itself"):
        things.register("sqrt", len)
    with pytest.raises(UsageError, match="3 is not callable"):
        things.register("3", 3)
