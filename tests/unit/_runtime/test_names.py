import importlib
import inspect
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest

from layerdag._runtime import (
    RenamedWarning,
    did_you_mean,
    old_property,
    takes_old_names,
    with_new_names,
    with_old_names,
)
from layerdag.errors import ConfigError

NAMES = {"old": "new"}


@takes_old_names(**NAMES)
@dataclass(frozen=True)
class Settings:
    new: int = 1
    other: int = 2


def test_an_old_keyword_sets_the_new_field_and_is_told_in_one_sentence() -> None:
    with pytest.warns(RenamedWarning, match="'old' is now called 'new'") as told:
        made = Settings(old=5)
    assert made == Settings(new=5)
    assert len(told) == 1


def test_the_warning_points_at_the_line_of_the_user() -> None:
    code = (
        "import warnings\n"
        "from layerdag.sampling import GenerationSettings\n"
        "GenerationSettings(candidates=2)\n"
        "GenerationSettings(labels='asked')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", code], capture_output=True, text=True, check=True
    )
    told = [line for line in done.stderr.splitlines() if "RenamedWarning" in line]
    assert [line.split(": ")[0] for line in told] == ["<string>:3", "<string>:4"]


def test_a_class_keeps_its_signature_and_can_be_replaced_in() -> None:
    assert list(inspect.signature(Settings).parameters) == ["new", "other"]
    assert replace(Settings(3), other=4) == Settings(3, 4)


def test_both_names_at_once_are_refused() -> None:
    with (
        pytest.warns(RenamedWarning),
        pytest.raises(ConfigError, match=r"'model\.old' is now called 'model\.new', and both"),
    ):
        with_new_names({"old": 1, "new": 2}, NAMES, "model.")


def test_an_old_name_fills_a_new_one_that_is_open() -> None:
    with pytest.warns(RenamedWarning):
        assert with_new_names({"old": 1, "new": None, "a": 3}, NAMES) == {"new": 1, "a": 3}


def test_new_names_alone_are_no_news() -> None:
    assert with_new_names({"new": 1}, NAMES) == {"new": 1}


def test_an_old_property_reads_the_new_attribute_and_warns() -> None:
    class Named:
        new = 3
        old = old_property("Named.old", "new")

    with pytest.warns(RenamedWarning, match=r"'Named\.old' is now called 'new'"):
        assert Named().old == 3


def test_a_package_resolves_old_names_of_its_classes() -> None:
    members = {"New": int, "Other": str}
    getter = with_old_names(members.__getitem__, "room", Old="New")
    assert getter("Other") is str
    with pytest.warns(RenamedWarning, match=r"'room\.Old' is now called 'New'"):
        assert getter("Old") is int


@pytest.mark.parametrize(
    ("package", "old", "new"),
    [
        ("layerdag.evaluation.metrics", "Descriptor", "DescriptorMetric"),
        ("layerdag.evaluation.privacy", "Nearness", "DistanceToClosestRecord"),
        ("layerdag.simulator", "UnmodeledCollectives", "UnsupportedCollectives"),
    ],
)
def test_renamed_classes_are_imported_by_their_old_names(package: str, old: str, new: str) -> None:
    room = importlib.import_module(package)
    with pytest.warns(RenamedWarning, match=f"'{package}.{old}' is now called '{new}'"):
        assert getattr(room, old) is getattr(room, new)
    assert old not in dir(room)


def test_the_known_name_spelled_most_like_it_is_proposed() -> None:
    assert did_you_mean("corpsu", ["folder", "corpus", "dgrl"]) == " Did you mean 'corpus'?"


@pytest.mark.parametrize("known", [[], ["folder", "dgrl"]])
def test_nothing_is_proposed_where_nothing_is_alike(known: list[str]) -> None:
    assert did_you_mean("xyzzy", known) == ""
