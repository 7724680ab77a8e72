"""Types that the edges to training nodes of each kind have together.

Shape letters: B graphs, G groups of rows, K codes, X selected graphs.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.dag.dag import GraphSizes
from layerdag.dag.neighbors import KindMultisets
from layerdag.models.layers import CountEncoder


class EdgeTypeSets(nn.Module):
    """The types that edges to nodes of a kind have together, imposed while they are drawn.

    A state is a kind, an in-degree and the multiset of types drawn so far; a type is possible if
    some listed multiset of as many types holds it beside them.
    """

    first_state: Tensor
    next_state: Tensor
    known_degrees: Tensor

    def __init__(self, sizes: GraphSizes, edge_type_sets: KindMultisets) -> None:
        super().__init__()
        listed = edge_type_sets or ((),) * sizes.attributes[0]
        most = max((len(multiset) for sets in listed for multiset in sets), default=0)
        first_state = torch.zeros((len(listed), most + 1), dtype=torch.int64)
        known_degrees = torch.ones((len(listed), most + 1), dtype=torch.bool)
        for kind, sets in enumerate(listed):
            if sets:
                known_degrees[kind] = False
        rows, firsts = _type_automaton(listed, sizes.edge_types)
        for kind, degree, first in firsts:
            known_degrees[kind, degree] = True
            first_state[kind, degree] = first
        self.register_buffer("first_state", first_state, persistent=False)
        self.register_buffer("known_degrees", known_degrees, persistent=False)
        self.register_buffer("next_state", torch.tensor(rows), persistent=False)

    @property
    def any_listed(self) -> bool:
        """Whether there is a list of any kind."""
        return self.next_state.shape[0] > 1

    def limit_degrees(
        self, logits_BK: Float[Tensor, "B K"], counter: CountEncoder, kind_B: Int[Tensor, " B"]
    ) -> Float[Tensor, "B K"]:
        """Rule out in-degree codes none of whose counts has a listed multiset."""
        most = self.known_degrees.shape[1]
        before = torch.nn.functional.pad(self.known_degrees.long().cumsum(1), (1, 0))
        lows_K1 = counter.lows_K1.long().clamp(max=most)
        low_K, high_K = lows_K1[:-1], lows_K1[1:]
        fits_BK = before[kind_B][:, high_K] > before[kind_B][:, low_K]
        fits_BK = fits_BK | self.known_degrees[kind_B].all(1, keepdim=True)
        fits_BK = fits_BK & (logits_BK > -torch.inf)
        return logits_BK.masked_fill(~fits_BK & fits_BK.any(1, keepdim=True), -torch.inf)

    def start(self, kind_X: Int[Tensor, " X"], degree_X: Int[Tensor, " X"]) -> Int[Tensor, " X"]:
        """Return the state of nodes of which no edge type is drawn."""
        most = self.first_state.shape[1] - 1
        state_X = self.first_state[kind_X, degree_X.clamp(max=most)]
        return state_X.masked_fill(degree_X > most, 0)

    def limit(
        self, logits_GK: Float[Tensor, "G K"], state_G: Int[Tensor, " G"]
    ) -> Float[Tensor, "G K"]:
        """Rule out edge types that no listed multiset holds beside those drawn."""
        return logits_GK.masked_fill(self.next_state[state_G] < 0, -torch.inf)

    def read(self, state_X: Int[Tensor, " X"], type_X: Int[Tensor, " X"]) -> Int[Tensor, " X"]:
        """Return the state after one more edge type, which ``limit`` left possible."""
        return self.next_state[state_X, type_X].clamp(min=0)


@lru_cache(maxsize=4)  # the model of a checkpoint is built twice, and loaded again and again
def _type_automaton(
    listed: KindMultisets, edge_types: int
) -> tuple[list[list[int]], list[tuple[int, int, int]]]:
    rows = [[0] * edge_types]  # of the state that allows everything
    firsts = []
    for kind, sets in enumerate(listed):
        for degree in {len(multiset) for multiset in sets}:
            same = [multiset for multiset in sets if len(multiset) == degree]
            firsts.append((kind, degree, _add_states(rows, same)))
    return rows, firsts


def _add_states(rows: list[list[int]], multisets: Sequence[tuple[int, ...]]) -> int:
    """Add the states of multisets of one size to a table of next states; return the first."""
    states: dict[tuple[int, ...], int] = {}

    def number(drawn: tuple[int, ...]) -> int:
        if drawn not in states:
            states[drawn] = len(rows)
            rows.append([-1] * len(rows[0]))
        return states[drawn]

    first = number(())
    for multiset in multisets:
        layer: set[tuple[int, ...]] = {()}  # what may be drawn after so many types
        for _ in multiset:
            after: set[tuple[int, ...]] = set()
            for drawn in layer:
                for member in Counter(multiset) - Counter(drawn):
                    further = tuple(sorted((*drawn, member)))
                    rows[number(drawn)][member] = number(further)
                    after.add(further)
            layer = after
    return first
