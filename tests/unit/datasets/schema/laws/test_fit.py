"""Laws that training graphs follow are found; what few show is not."""

import numpy as np
import pytest
from lawful_graphs import lawful_graph, lawful_graphs

from layerdag.datasets.schema.laws import fit_laws
from layerdag.errors import DataError


def test_graphs_that_follow_laws_have_relative_numbers_of_one() -> None:
    graphs = lawful_graphs()
    laws = fit_laws(graphs, 5)
    for graph in graphs:
        found = laws.relative(graph)
        np.testing.assert_allclose(found.numbers["flops"], [1, 1, np.nan], rtol=1e-3)
        np.testing.assert_allclose(found.numbers["comm_bytes"], [np.nan, np.nan, 1], rtol=1e-3)


def test_laws_hold_at_widths_that_no_training_graph_has() -> None:
    laws = fit_laws(lawful_graphs(), 5)
    wide = lawful_graph(16384.0, 4096.0, 64, "llama", "yes")
    np.testing.assert_allclose(laws.relative(wide).numbers["flops"][:2], 1, rtol=0.01)
    np.testing.assert_allclose(laws.absolute(laws.relative(wide)).numbers["flops"][0],
                               wide.numbers["flops"][0], rtol=0.01)  # fmt: skip


def test_conditions_have_the_parts_that_their_words_say() -> None:
    laws = fit_laws(lawful_graphs(), 5)
    assert set(laws.numbers) < {"width", "length", "ranks", "tokens"}
    assert len(laws.numbers) == 3  # the fourth is a product of two others
    assert laws.switches == ("split",)
    assert laws.factors == ("family",)
    assert [str(relation) for relation in laws.relations] == ["tokens = width x length"]


def test_exponents_are_those_of_the_laws() -> None:
    laws = fit_laws(lawful_graphs(), 5)
    law = laws.laws["flops", "mm||none|", "no"]
    power = dict(zip(laws.numbers, law.exponents, strict=True))
    assert power == pytest.approx({"width": 2.0, "length": 1.0, "ranks": -1.0}, abs=1e-4)
    assert law.factors[0]["llama"] == pytest.approx(np.log(3), abs=1e-4)


def test_what_few_graphs_show_has_no_law_of_its_own() -> None:
    graphs = lawful_graphs()
    laws = fit_laws(graphs, len(graphs))
    assert {state for _, _, state in laws.laws} == {"*"}  # no split of the graphs is large enough


def test_the_order_of_the_graphs_decides_nothing() -> None:
    graphs = lawful_graphs()
    one, other = fit_laws(graphs, 5), fit_laws(graphs[::-1], 5)
    assert one.laws.keys() == other.laws.keys()
    for key, law in one.laws.items():
        assert law.exponents == pytest.approx(other.laws[key].exponents, abs=1e-4)


def test_numbers_that_go_with_nothing_are_refused() -> None:
    with pytest.raises(DataError, match="numbers=absolute"):
        fit_laws([lawful_graph(256.0, 64.0, 2)], 1)
