"""Laws are checked on the same examples in every run of ``make test``."""

from hypothesis import given, settings, strategies as st
from laws import tried


def test_a_law_sees_the_same_examples_every_time():
    seen: list[list[int]] = []

    @tried(20)
    @given(st.lists(st.integers()))
    def law(values: list[int]) -> None:
        seen.append(values)

    law()
    law()
    assert len(seen) == 40
    assert seen[:20] == seen[20:]


def test_nothing_is_remembered_between_runs():
    assert settings.default is not None
    assert settings.default.database is None


def test_a_search_tries_more_of_every_law():
    assert tried(30).max_examples == 30
    with_search = settings.get_profile("search")
    assert with_search.max_examples > settings.get_profile("fixed").max_examples
    assert not with_search.derandomize
