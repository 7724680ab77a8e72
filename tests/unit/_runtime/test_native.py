"""The compiled kernels: found once, or missing with what to do."""

import importlib.util
from types import SimpleNamespace

import pytest

from layerdag._runtime import library, track
from layerdag.errors import LayerdagError


def test_the_library_is_opened_once() -> None:
    assert library() is library()


@pytest.mark.parametrize("spec", [None, SimpleNamespace(origin=None)])
def test_a_package_that_was_copied_says_how_to_install_it(monkeypatch, spec) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(LayerdagError, match=r"kernels of layerdag are missing; install .*pip inst"):
        library.__wrapped__()


def test_progress_passes_everything_on_and_is_silent_in_a_pipe(capsys) -> None:
    assert list(track(iter([3, 1, 2]), "counting", total=3)) == [3, 1, 2]
    assert capsys.readouterr() == ("", "")
