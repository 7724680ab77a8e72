import pytest

from layerdag._runtime import did_you_mean


def test_the_known_name_spelled_most_like_it_is_proposed() -> None:
    assert did_you_mean("corpsu", ["folder", "corpus", "dgrl"]) == " Did you mean 'corpus'?"


@pytest.mark.parametrize("known", [[], ["folder", "dgrl"]])
def test_nothing_is_proposed_where_nothing_is_alike(known: list[str]) -> None:
    assert did_you_mean("xyzzy", known) == ""
