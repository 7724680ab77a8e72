"""What degrees were asked for, and which axis of the ranks takes them."""

from math import prod

import pytest
from hypothesis import assume, given, strategies as st
from laws import tried

from layerdag.errors import UsageError
from layerdag.workloads.scaling._degrees import Degrees, Found, new_sizes

DATA = Found(("data",), (4,), (False,))
MESH = Found(("tensor", "pipeline", "data"), (2, 4, 8), (False, False, False))
TWO_DATA = Found(("data", "data"), (2, 4), (True, False))
STAGES = Found(("pipeline",), (4,), (False,))
ONE = Found((), (), ())


def asked(**words: int | None) -> Degrees:
    return Degrees.of(words)


def sizes(found: Found, **words: int | None) -> tuple[int, ...]:
    return new_sizes(asked(**words), found, "job")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({}, "Say what should change: ranks, data, tensor, layers."),
        ({"layers_now": 4}, "Say what should change"),  # says what is, not what should be
        ({"ranks": 0}, "ranks is 0; it must be a whole number, at least 1"),
        ({"data": True}, "data is True"),
        ({"tensr": 2}, r"no setting 'tensr'.*Did you mean 'tensor'"),
    ],
)
def test_what_cannot_be_asked_for_is_one_sentence(words: dict[str, int], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Degrees.of(words)


def test_what_is_not_mentioned_stays() -> None:
    assert asked(layers=8, data=None) == Degrees(layers=8)
    assert sizes(MESH, layers=8) == MESH.sizes


def test_ranks_go_to_data_parallelism() -> None:
    assert sizes(DATA, ranks=1024) == (1024,)
    assert sizes(MESH, ranks=1024) == (2, 4, 128)


def test_a_stated_degree_leaves_the_rest_to_data_parallelism() -> None:
    assert sizes(MESH, tensor=4) == (4, 4, 8)
    assert sizes(MESH, tensor=4, ranks=256) == (4, 4, 16)
    assert sizes(MESH, tensor=4, data=2) == (4, 4, 2)


def test_without_data_parallelism_the_only_other_axis_grows() -> None:
    tensor = Found(("tensor", "pipeline"), (2, 2), (False, False))
    assert sizes(tensor, ranks=16) == (8, 2)


def test_a_degree_of_one_is_what_a_trace_without_the_axis_has() -> None:
    assert sizes(DATA, tensor=1, data=8) == (8,)
    assert sizes(ONE, tensor=1) == ()


@pytest.mark.parametrize(
    ("found", "words", "told"),
    [
        (DATA, {"tensor": 2}, "has no tensor parallelism .found data x 4."),
        (ONE, {"data": 2}, "has no data parallelism .found one rank."),
        (TWO_DATA, {"data": 8}, "has several axes of data parallelism"),
        (TWO_DATA, {"ranks": 64}, "--ranks does not say which degree changes.*Give --data"),
        (STAGES, {"ranks": 8}, "None of these can grow by a rule"),
        (MESH, {"ranks": 100}, "100 ranks are no multiple of the 8 ranks along the other axes"),
    ],
)
def test_what_a_trace_does_not_tell_is_refused_by_name(
    found: Found, words: dict[str, int], told: str
) -> None:
    with pytest.raises(UsageError, match=told) as error:
        sizes(found, **words)
    assert str(error.value).startswith("job: ")


@tried(100)
@given(
    kinds=st.permutations(["tensor", "pipeline", "data"]),
    before=st.tuples(*[st.integers(1, 6)] * 3),
    ranks=st.integers(1, 400),
)
def test_the_sizes_multiply_to_the_ranks_and_only_data_changes(
    kinds: list[str], before: tuple[int, int, int], ranks: int
) -> None:
    found = Found(tuple(kinds), before, (False,) * 3)
    data = kinds.index("data")
    others = prod(before) // before[data]
    if ranks % others:
        with pytest.raises(UsageError, match="no multiple"):
            sizes(found, ranks=ranks)
        return
    after = sizes(found, ranks=ranks)
    assert prod(after) == ranks
    assert [a for axis, a in enumerate(after) if axis != data] == [
        b for axis, b in enumerate(before) if axis != data
    ]


@tried(50)
@given(degree=st.integers(1, 64), size=st.integers(1, 64))
def test_asking_for_what_is_there_changes_nothing(degree: int, size: int) -> None:
    assume(degree * size > 1)
    found = Found(("tensor", "data"), (degree, size), (False, False))
    assert sizes(found, ranks=degree * size) == (degree, size)
    assert sizes(found, tensor=degree, data=size) == (degree, size)
