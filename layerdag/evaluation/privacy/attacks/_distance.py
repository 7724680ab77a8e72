"""Membership by the distances of real graphs to samples."""

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.evaluation.privacy import Scores
from layerdag.evaluation.privacy.attacks._pool import Pool, Roles


class NearestSample:
    """The nearer a sample, the likelier a member (Chen et al., GAN-Leaks, CCS 2020)."""

    name = "nearest_sample"
    description = "how near the nearest sample is"

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def folds(self, roles: Roles, seed: int) -> list[Scores]:
        """Return the scores."""
        del seed
        return [_nearest(self._pool.distances(roles.real_G, roles.sample_K), roles)]

    def fractions(self, roles: Roles) -> None:
        """Return nothing: the score is no fraction."""


class NearestProgram:
    """Nearness without what was measured.

    Measured times differ from run to run of one program, so that a training graph measured again is
    far from itself where they count.
    """

    name = "nearest_program"
    description = "how near the nearest sample is, measured times left out"

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def folds(self, roles: Roles, seed: int) -> list[Scores]:
        """Return the scores."""
        del seed
        return [_nearest(self._pool.program_distances(roles.real_G, roles.sample_K), roles)]

    def fractions(self, roles: Roles) -> None:
        """Return nothing: the score is no fraction."""


class DensityRatio:
    """Density of samples over that of other real graphs (van Breugel et al., DOMIAS, AISTATS 2023).

    The same density of samples means more where real graphs are rare, so it is divided by the
    density of other real graphs, which the attacker has: a random half of the held-out ones, while
    the other half are the non-members. Both halves take both parts in turn, and the figure is the
    mean. Densities are Gaussian kernel estimates over Weisfeiler-Lehman distances.
    """

    name = "density_ratio"
    description = "density of samples over that of other real graphs"

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def folds(self, roles: Roles, seed: int) -> list[Scores]:
        """Return the scores of members and of one half of the others, by the other half; twice."""
        folds = []
        for reference, others in halves_of(roles, seed):
            rows, width, reference_G = self.by_reference(reference, others, roles)
            to_sample = self._pool.distances(rows, roles.sample_K)
            ratio_G = _log_density(to_sample, width) - reference_G
            folds.append((ratio_G[: roles.member_T.size], ratio_G[roles.member_T.size :]))
        return folds

    def by_reference(
        self, reference: np.ndarray, others: np.ndarray, roles: Roles
    ) -> tuple[np.ndarray, float, np.ndarray]:
        """Return who is scored, the bandwidth, and the logarithm of their density of real graphs.

        Args:
            reference: Real graphs that the attacker has.
            others: Non-members that are scored, after the members.
            roles: The parts that graphs play.
        """
        rows = np.concatenate([roles.member_T, others])
        to_reference = self._pool.distances(rows, reference)
        width = _bandwidth(to_reference)
        return rows, width, _log_density(to_reference, width)

    def fractions(self, roles: Roles) -> None:
        """Return nothing: the score is no fraction."""


class NearestTally:
    """``NearestSample`` and ``NearestProgram`` of samples that come some at a time.

    Args:
        attack: Which of both.
        roles: The parts of the real graphs.
    """

    def __init__(self, attack: NearestSample | NearestProgram, roles: Roles) -> None:
        self.attack, self._roles = attack, roles
        self._nearest_G = np.full(roles.real_G.size, np.inf)

    def add(self, distance_KG: np.ndarray) -> None:
        """Look at samples, by their distances to all real graphs."""
        np.minimum(self._nearest_G, distance_KG.min(axis=0), out=self._nearest_G)

    def folds(self) -> list[Scores]:
        """Return the scores."""
        return [_nearest(self._nearest_G[:, None], self._roles)]


class DensityTally:
    """``DensityRatio`` of samples that come some at a time.

    Args:
        attack: The same of samples that are held, with distances between real graphs.
        roles: The parts of the real graphs, and as many samples as there will be.
        seed: Of the halves.
    """

    def __init__(self, attack: DensityRatio, roles: Roles, seed: int) -> None:
        self.attack, self._roles = attack, roles
        self._folds = [attack.by_reference(*parts, roles) for parts in halves_of(roles, seed)]
        self._sums = [np.full(rows.size, -np.inf) for rows, _, _ in self._folds]

    def add(self, distance_KG: np.ndarray) -> None:
        """Look at samples, by their distances to all real graphs."""
        for sum_G, (rows, width, _) in zip(self._sums, self._folds, strict=True):
            exponent_KG = -0.5 * (distance_KG[:, rows] / width) ** 2
            most_G = exponent_KG.max(axis=0)
            found_G = most_G + np.log(np.exp(exponent_KG - most_G).sum(axis=0))
            np.logaddexp(sum_G, found_G, out=sum_G)

    def folds(self) -> list[Scores]:
        """Return the scores."""
        count, found = self._roles.sample_K.size, []
        for sum_G, (_, _, reference_G) in zip(self._sums, self._folds, strict=True):
            ratio_G = sum_G - np.log(count) - reference_G
            found.append(tuple(np.split(ratio_G, [self._roles.member_T.size])))
        return [(member_T, other_H) for member_T, other_H in found]


def halves_of(roles: Roles, seed: int) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Return (what the attacker has, non-members) for both halves of the held-out graphs in turn.

    There are none of fewer than two.
    """
    count = roles.other_H.size
    if count < 2:
        return ()
    order = numpy_generator(seed, "membership").permutation(count)
    first, second = roles.other_H[order[: count // 2]], roles.other_H[order[count // 2 :]]
    return (first, second), (second, first)


def _nearest(distance_GK: np.ndarray, roles: Roles) -> Scores:
    """Return minus the distance to the nearest sample."""
    nearest_G = -distance_GK.min(axis=1)
    return nearest_G[: roles.member_T.size], nearest_G[roles.member_T.size :]


def _bandwidth(distance_GK: np.ndarray) -> float:
    """Return a third of the median distance to the nearest graph.

    A copy then weighs as much as exp(9 / 2), about 90, neighbors at that distance.
    """
    return max(float(np.median(distance_GK.min(axis=1))) / 3, 1e-3)


def _log_density(distance_GK: np.ndarray, width: float) -> np.ndarray:
    """Return the logarithm of a kernel density from distances, up to one constant."""
    exponent_GK = -0.5 * (distance_GK / width) ** 2
    found: np.ndarray = np.logaddexp.reduce(exponent_GK, axis=1) - np.log(distance_GK.shape[1])
    return found
