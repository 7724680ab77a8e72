"""A gap: layers of a graph between given ones."""

import pytest
import torch
from gaps import begun, random_gap

from layerdag.errors import UsageError
from layerdag.graph import Gap, Prefix

SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
def test_removed_layers_put_back_make_the_graph(seed: int) -> None:
    gap = random_gap(seed)
    again = gap.filled(Prefix.of(gap.dag, gap.end_layer).dag, gap.dag.edge_index_2E[0, gap.open_P])
    for name in ("x_NA", "u_NA", "edge_index_2E", "edge_type_E", "layer_N"):
        assert torch.equal(getattr(again, name), getattr(gap.dag, name)), name


def test_an_edge_without_a_new_parent_is_left_out() -> None:
    gap = random_gap(0)
    first = begun(gap, (2, 2))
    whole = gap.filled(first, torch.full((len(gap.open_P),), first.num_nodes - 1))
    fewer = gap.filled(first, torch.full((len(gap.open_P),), -1))
    assert whole.num_edges - fewer.num_edges == len(gap.open_P) > 0


def test_children_after_the_gap_are_reserved() -> None:
    gap = random_gap(1)
    source_E, target_E = gap.dag.edge_index_2E
    later = [int(((source_E == node) & (target_E >= gap.end)).sum()) for node in range(gap.start)]
    assert list(gap.prefix.reserved) == later
    assert gap.prefix.out_degrees == Prefix.of(gap.dag, 2).out_degrees


@pytest.mark.parametrize(("first", "last"), [(3, 3), (5, 1), (2, 9), (2, 0)])
def test_a_gap_of_no_layer_is_refused(first: int, last: int) -> None:
    said = f"Of the 6 layers of this graph the first {first} and the last {last} are to be kept"
    with pytest.raises(UsageError, match=said):
        Gap.of(random_gap(0).dag, first, last)
