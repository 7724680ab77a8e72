"""Which graphs teach which target."""

import numpy as np
import pytest
from raw_graphs import chain

from layerdag.datasets import GraphDataset
from layerdag.errors import DataError, UsageError
from layerdag.surrogates._fitting import KnownTargets, fits_of

GRAPHS = [
    chain("both", "ab", time=1.0, memory=10.0),
    chain("time", "aab", time=2.0),
    chain("memory", "aaab", memory=30.0),
    chain("neither", "b"),
]
DATA = GraphDataset.build("toy", "flow", {"train": GRAPHS})


def known(*names: str) -> KnownTargets:
    return KnownTargets.of(DATA.graphs["train"], DATA.schema, names, ())


def test_graphs_with_any_target_are_kept_and_each_target_has_its_own() -> None:
    found = known("time", "memory")
    assert [dag.num_nodes for dag in found.dags] == [2, 3, 4]
    np.testing.assert_array_equal(found.target_B["time"], [1.0, 2.0, np.nan])
    dags, memory_B = found.having("memory")
    assert ([dag.num_nodes for dag in dags], memory_B.tolist()) == ([2, 4], [10.0, 30.0])
    assert known("memory").target_B["memory"].tolist() == [10.0, 30.0]
    some = found.rows(np.array([2, 0]))
    assert some.target_B["memory"].tolist() == [30.0, 10.0]
    assert [dag.num_nodes for dag in some.dags] == [4, 2]


def test_a_target_that_no_graph_has_or_that_is_no_number_is_told() -> None:
    with pytest.raises(DataError, match=r"No graph has a number 'power'.*--labels"):
        known("time", "power")
    first, *others = DATA.graphs["train"]
    strange = first.with_conditions({"time": float("inf")})
    with pytest.raises(UsageError, match="1 graphs have a 'time' that is not finite"):
        KnownTargets.of([strange, *others], DATA.schema, ["time"], ())


@pytest.mark.parametrize("family", ["boosting", "additive", "stacked"])
def test_families_without_a_network_say_what_to_take_instead(family: str) -> None:
    with pytest.raises(UsageError, match=r"no network .* message_passing, dag_transformer, or"):
        fits_of(family, None, shared=True)
    with pytest.raises(UsageError, match=r"'message_passing' has no setting 'trees'"):
        fits_of("message_passing", {"trees": 3}, shared=True)
