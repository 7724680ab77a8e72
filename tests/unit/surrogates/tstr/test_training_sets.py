import numpy as np
import pytest

from layerdag.errors import UsageError
from layerdag.surrogates import REAL, SHUFFLED, SYNTHETIC, Labeled
from layerdag.surrogates.tstr import AUGMENTED, REDRAWN, SUBSAMPLE, few_real, training_set


def test_training_sets_are_what_their_names_say(real: Labeled) -> None:
    half = np.arange(30)
    first, second = real.taken(half), real.taken(half + 30)
    assert training_set(REAL, first, second, 0) is first
    assert training_set(SYNTHETIC, first, second, 0) is second
    assert len(training_set(AUGMENTED, first, second, 0).dags) == 60
    assert len(training_set(SUBSAMPLE, first, second, 0).dags) == 7
    shuffled = training_set(SHUFFLED, first, second, 0)
    assert shuffled.dags is first.dags
    assert sorted(shuffled.target_B) == sorted(first.target_B)
    assert (shuffled.target_B != first.target_B).any()


def test_real_graphs_drawn_again_are_as_many_with_their_own_targets(real: Labeled) -> None:
    again = training_set(REDRAWN, real, real, 0)
    rows = [real.dags.index(dag) for dag in again.dags]
    assert len(rows) == 60
    assert len(set(rows)) < 60
    assert (again.target_B == real.target_B[rows]).all()


def test_few_real_graphs_are_the_same_alone_and_with_samples_and_among_more(real: Labeled) -> None:
    samples = real.taken(np.arange(3))
    alone, more = (training_set(f"{count} real", real, samples, 5) for count in (10, 20))
    together = training_set("10 real + synthetic", real, samples, 5)
    assert together.dags == alone.dags + samples.dags
    assert more.dags[:10] == alone.dags
    assert training_set("10 real", real, samples, 6).dags != alone.dags


def test_conditions_of_few_graphs_are_named_and_bounded() -> None:
    assert few_real((10, 5, 10), 60) == (
        "10 real", "10 real + synthetic", "5 real", "5 real + synthetic",
    )  # fmt: skip
    with pytest.raises(UsageError, match="3 of 60 real training graphs; take from 4 to 60"):
        few_real((3,), 60)
