"""Candidates that agree so far, so that what they have in common is computed once.

Candidates of a graph are drawn from one state, and sharp distributions make many of them alike: a
state, its scores and its logits are then the same, and only the uniforms differ.

Shape letters: D width of a state, G groups of rows (candidates that agree), K codes, O options
(candidates of a graph), P pairs (of graph and candidate), Q decisions (about groups: G or 2 G), R
rows (of candidates: P or 2 P), X selected graphs (or candidates).
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from layerdag.models.autoregressive.sampling._guidance import Guidance
from layerdag.models.draws import sample_from_logits


@dataclass(frozen=True, eq=False)
class Alike:
    """Groups of candidates about which all decisions so far are the same.

    Attributes:
        group_P: Group of each candidate.
        option_P: Number of each candidate among those of its graph.
        options: Candidates per graph.
        first_G: One candidate of each group.
    """

    group_P: Int[Tensor, " P"]
    option_P: Int[Tensor, " P"]
    options: int
    first_G: Int[Tensor, " G"]

    @classmethod
    def by_graph(cls, graphs: int, options: int, device: torch.device) -> "Alike":
        """Return one group per graph, before anything is decided."""
        candidate_P = torch.arange(graphs * options, device=device)
        return cls(
            candidate_P // options,
            candidate_P % options,
            options,
            torch.arange(graphs, device=device) * options,
        )

    @property
    def groups(self) -> int:
        """Number of groups (G)."""
        return self.first_G.shape[0]

    def of(self, value_P: Shaped[Tensor, " P"]) -> Shaped[Tensor, " G"]:
        """Return the value of each group, which all of its candidates have."""
        return value_P[self.first_G]

    def draw(
        self, logits_GK: Float[Tensor, "G K"], uniform_P: Float[Tensor, " P"]
    ) -> Int[Tensor, " P"]:
        """Return a code for each candidate, drawn from the logits of its group."""
        if self.options == 1:
            return sample_from_logits(logits_GK, uniform_P)
        uniform_GO = uniform_P.new_zeros((self.groups, self.options))
        uniform_GO[self.group_P, self.option_P] = uniform_P
        return sample_from_logits(logits_GK, uniform_GO)[self.group_P, self.option_P]

    def split(self, code_P: Int[Tensor, " P"]) -> "Alike":
        """Return the groups after one more decision, whose non-negative codes are given."""
        if self.options == 1:
            return self
        return self._numbered(self.group_P * (int(code_P.max()) + 1) + code_P, self.option_P)

    def keep(self, chosen_X: Int[Tensor, " X"]) -> "Alike":
        """Return the groups of the candidates ``chosen_X`` alone, under their new numbers."""
        return self._numbered(self.group_P[chosen_X], self.option_P[chosen_X])

    def _numbered(self, key_P: Int[Tensor, " P"], option_P: Int[Tensor, " P"]) -> "Alike":
        """Return a group for each key that occurs."""
        candidate_P = torch.arange(key_P.shape[0], device=key_P.device)
        if self.options == 1:
            return Alike(candidate_P, option_P, 1, candidate_P)
        found_G, group_P = torch.unique(key_P, return_inverse=True)
        first_G = torch.zeros_like(found_G).index_put((group_P,), candidate_P)
        return Alike(group_P, option_P, self.options, first_G)


@dataclass(frozen=True, eq=False)
class GroupStates:
    """States of decisions, one row (two under guidance) for each group of candidates.

    Attributes:
        guidance: Of the request.
        alike: The groups.
        columns: States, each of shape (Q, D).
    """

    guidance: Guidance
    alike: Alike
    columns: tuple[Float[Tensor, "Q D"], ...]

    def split(self, code_P: Int[Tensor, " P"]) -> "GroupStates":
        """Return the states of the groups after one more decision."""
        split = self.alike.split(code_P)
        return self._taken(split, split.of(self.alike.group_P))

    def keep(self, chosen_X: Int[Tensor, " X"]) -> "GroupStates":
        """Return the states of the groups of the candidates ``chosen_X``."""
        kept = self.alike.keep(chosen_X)
        return self._taken(kept, kept.of(self.alike.group_P[chosen_X]))

    def having(self, *columns: Float[Tensor, "Q D"]) -> "GroupStates":
        """Return other states of the same groups."""
        return replace(self, columns=columns)

    def of_candidates(self, chosen_X: Int[Tensor, " X"]) -> tuple[Float[Tensor, "R D"], ...]:
        """Return the states of the candidates ``chosen_X``, one row (or two) for each."""
        row_R = self.guidance.rows(self.alike.group_P[chosen_X], self.alike.groups)
        return tuple(column[row_R] for column in self.columns)

    def _taken(self, alike: Alike, group_G: Int[Tensor, " G"]) -> "GroupStates":
        """Return the states of groups that each are a part of one of these."""
        row_Q = self.guidance.rows(group_G, self.alike.groups)
        return replace(self, alike=alike, columns=tuple(column[row_Q] for column in self.columns))
