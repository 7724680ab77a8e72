"""Reconstruction, identification and property inference, and all attacks on samples together.

Reconstruction asks how much of a real graph the best aligned sample holds. Nodes are read layer by
layer, and within a layer by their operators; two graphs are aligned by the longest common
subsequence, whose length is found for one node after the other with all places of the other graph
as the bits of one number (Hyyrö, AWOCA 2004).

Identification asks which job made a sample: the attacker guesses family, parallelism, depth and
width of the nearest training job as read from the sample, and the same of the nearest held-out job,
which no sample can betray.

Property inference asks whether samples follow the training set where it happens to differ from
other sets drawn as it was (Ateniese et al., IJSN 10(3), 2015; Suri and Evans, PETS 2022).

Each attack alone is right about nothing being found in 39 of 40 cases where nothing leaks; of many
attacks some would be wrong far more often. Those by distance keep that level each, those that
learn, align or infer share it among them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from layerdag.privacy.likelihood_ratio import ModelScores, pooled_attack
from layerdag.privacy.membership import AttackResult, Scores, attack_by_scores
from layerdag.privacy.membership_attacks import (
    Attack,
    AttackPool,
    CalibratedClassifier,
    DensityRatio,
    NearestProgram,
    NearestSample,
    Roles,
    TallyAttack,
    Trait,
    UniqueMotifs,
)
from layerdag.runtime.rng import numpy_generator
from layerdag.statistics import (
    CHANCE,
    MARGIN,
    NORMAL_95,
    Interval,
    SampleSizeRequirement,
    Verdict,
    round_up,
)

MAX_ALIGNED = 16
"""Samples that a real graph is aligned with: those that share most operators with it."""
CHUNK = 256


class Reconstruction(Attack):
    """Largest fraction of a real graph that one sample reconstructs, over all samples.

    The fraction is of the nodes of the larger one of both graphs, so that a huge sample, in which
    anything can be found, reconstructs nothing.
    """

    name = "reconstruction"
    description = "fraction of its nodes, aligned along the layers, that the best sample has"

    def __init__(self, pool: AttackPool) -> None:
        graphs = pool.graphs
        order_N = np.lexsort((graphs.x_NA[:, 0], graphs.layer_N, graphs.graph_N))
        code_N = graphs.x_NA[order_N, 0]
        self._words = [part.tolist() for part in np.split(code_N, graphs.node_ptr[1:-1])]
        self._nodes_P = graphs.nodes_B
        size = int(code_N.max(initial=0)) + 1
        flat = np.bincount(graphs.graph_N * size + code_N, minlength=graphs.num_graphs * size)
        self._count_PC = flat.reshape(graphs.num_graphs, size)
        self._known: dict[tuple[int, int], float] = {}

    def folds(self, roles: Roles, seed: int) -> list[Scores]:
        """Return the fractions."""
        del seed
        return [roles.split(self.best_fractions(roles.real_G, roles.sample_K))]

    def fractions(self, roles: Roles) -> tuple[float, float]:
        """Return the mean fraction of members, and of others."""
        of_members, of_others = (
            float(self.best_fractions(rows, roles.sample_K).mean())
            for rows in (roles.member_T, roles.other_H)
        )
        return of_members, of_others

    def best_fractions(self, real_G: np.ndarray, sample_K: np.ndarray) -> np.ndarray:
        """Return the best fraction of each real graph, float64 (G,)."""
        best_G = np.zeros(real_G.size)
        for start in range(0, real_G.size, CHUNK):
            bound_CK = self._bounds(real_G[start : start + CHUNK], sample_K)
            order_CK = np.argsort(-bound_CK, axis=1, kind="stable")[:, :MAX_ALIGNED]
            for row, (bound_K, order_K) in enumerate(zip(bound_CK, order_CK, strict=True), start):
                for index in order_K.tolist():
                    if bound_K[index] <= best_G[row]:
                        break
                    fraction = self._aligned(int(real_G[row]), int(sample_K[index]))
                    best_G[row] = max(best_G[row], fraction)
        return best_G

    def _bounds(self, real_G: np.ndarray, sample_K: np.ndarray) -> np.ndarray:
        common_GK = np.zeros((real_G.size, sample_K.size), dtype=np.int64)
        for count_P in self._count_PC.T:
            of_real_G, of_sample_K = count_P[real_G], count_P[sample_K]
            if of_real_G.any() and of_sample_K.any():
                common_GK += np.minimum(of_real_G[:, None], of_sample_K)
        larger_GK = np.maximum(self._nodes_P[real_G][:, None], self._nodes_P[sample_K])
        return common_GK / np.maximum(larger_GK, 1)

    def _aligned(self, real: int, sample: int) -> float:
        key = (real, sample)
        if key not in self._known:
            larger = max(self._nodes_P[real], self._nodes_P[sample], 1)
            common = common_length(self._words[real], self._words[sample])
            self._known[key] = common / float(larger)
        return self._known[key]


def common_length(first: list[int], second: list[int]) -> int:
    """Return the length of a longest common subsequence."""
    positions: dict[int, int] = {}
    for index, word in enumerate(first):
        positions[word] = positions.get(word, 0) | (1 << index)
    every = (1 << len(first)) - 1
    row = every
    for word in second:
        matches = row & positions.get(word, 0)
        row = ((row + matches) | (row - matches)) & every
    return len(first) - row.bit_count()


@dataclass(frozen=True)
class Inference:
    """How much better something is read of training graphs than of held-out ones.

    That samples show what kind of graphs were trained on is what they are for, and it says as much
    of graphs that were held out. What they say of training graphs beyond that is the advantage.

    Attributes:
        name: "model:family", "model:num_layers", ..., or "properties".
        description: What is read, in a clause.
        of_training: How well it is read of training graphs, 1 is always.
        of_held_out: How well the same is read of as many held-out graphs.
        by_chance: How well without samples.
        advantage: What training graphs lose beyond that; 0 is nothing.
        interval: 95 % interval of ``advantage``, from the spread where chance calls a real graph a
            training graph; of all traits of single jobs together.
        margin: Within which the interval must lie to count as no better than chance.
        need: About how many graphs a verdict would take; None where there is one.
    """

    name: str
    description: str
    of_training: float
    of_held_out: float
    by_chance: float
    advantage: float
    interval: Interval
    margin: float
    samples: int
    verdict: Verdict
    need: SampleSizeRequirement | None

    @classmethod
    def from_half_width(
        cls,
        name: str,
        description: str,
        read: tuple[float, float, float],
        advantage: float,
        half: float,
        *,
        margin: float,
        roles: Roles,
    ) -> "Inference":
        """Return the outcome from ``half``, half the width of the advantage's 95 % interval.

        ``read`` says how well of training graphs, of held-out ones, and by chance.
        """
        interval = Interval(advantage - half, advantage + half)
        scale = MARGIN / margin
        verdict = Verdict.from_interval(
            Interval(CHANCE + scale * interval.low, CHANCE + scale * interval.high)
        )
        need = None
        if verdict is Verdict.TOO_FEW:
            allowed = max(abs(advantage), margin - abs(advantage))
            held_out = roles.other_H.size
            count = round_up(held_out * (half / allowed) ** 2)
            need = SampleSizeRequirement("held-out graphs", held_out, count)
        samples = roles.sample_K.size
        return cls(name, description, *read, advantage, interval, margin, samples, verdict, need)

    @property
    def leaks(self) -> bool:
        """Whether training graphs lose more than held-out ones, beyond chance."""
        return self.verdict is Verdict.LEAKS

    def in_words(self) -> str:
        """Return the verdict as a clause."""
        word = {
            Verdict.LEAKS: "says more of training graphs",
            Verdict.REVERSED: "says more of held-out graphs: the two parts are not alike",
        }.get(self.verdict, self.verdict.value)
        return word if self.need is None else f"{word} ({self.need.in_words()})"


RELABELINGS = 200


def identified_traits(
    pool: AttackPool, traits: Sequence[Trait], roles: Roles, seed: int
) -> tuple[Inference, ...]:
    """Return how often each trait of the nearest job is that which its sample shows.

    The larger one of the training and the held-out part is cut at random to the size of the other.
    Chance is a training job drawn at random among those that state what was asked for.
    """
    size = min(roles.member_T.size, roles.other_H.size)
    if not size or not roles.sample_K.size:
        return ()
    rng = numpy_generator(seed, "identification")
    cut = [np.sort(rng.permutation(part)[:size]) for part in (roles.member_T, roles.other_H)]
    real_S = np.concatenate(cut)
    to_samples_KS = pool.program_distances(real_S, roles.sample_K).T
    labels = [np.arange(2 * size) < size]
    labels += [rng.permutation(2 * size) < size for _ in range(RELABELINGS)]
    nearest = [
        real_S[np.flatnonzero(side)[to_samples_KS[:, side].argmin(axis=1)]]
        for is_train_S in labels
        for side in (is_train_S, ~is_train_S)
    ]
    nearest_R2K = np.stack(nearest).reshape(len(labels), 2, -1)
    asked_KT = _as_asked(traits, roles)
    # One false alarm in 40 over all traits.
    quantile = NormalDist().inv_cdf(1 - 0.025 / len(traits)) if traits else 0.0
    found = []
    for trait in traits:
        read_K = trait.code_P[roles.sample_K]
        right_R2 = (trait.code_P[nearest_R2K] == read_K).mean(axis=2)
        gain_R = right_R2[:, 0] - right_R2[:, 1]
        same_KT = read_K[:, None] == trait.code_P[roles.member_T]
        by_chance = float(((same_KT & asked_KT).sum(axis=1) / asked_KT.sum(axis=1)).mean())
        # What never happened among so many may still happen in 3 of as many (the rule of three).
        half = max(quantile * float(np.sqrt(np.mean(gain_R[1:] ** 2))), 3 / min(read_K.size, size))
        found.append(
            Inference.from_half_width(
                f"model:{trait.name}",
                f"{trait.name} of the nearest job is that of the sample",
                (float(right_R2[0, 0]), float(right_R2[0, 1]), by_chance),
                float(gain_R[0]),
                half,
                margin=MARGIN,
                roles=roles,
            )
        )
    return tuple(found)


def _as_asked(traits: Sequence[Trait], roles: Roles) -> np.ndarray:
    """Return which training graphs state everything that was asked of each sample, (K, T)."""
    fits_KT = np.ones((roles.sample_K.size, roles.member_T.size), dtype=bool)
    for trait in traits:
        asked_K1 = trait.stated_P[roles.sample_K][:, None]
        fits_KT &= (asked_K1 < 0) | (asked_K1 == trait.stated_P[roles.member_T])
    fits_KT[~fits_KT.any(axis=1)] = True
    return fits_KT


PROPERTY_RELABELINGS = 1000
CLASSES = 8
"""Classes of a trait with many values, of equal numbers of real graphs."""
PROPERTY_MARGIN = 0.5
"""Of the advantage: how far samples follow the training set, 1 is all the way."""
CLIP = 4.0
"""Standard deviations beyond which a main component counts no more: samples may lie far off."""


def inferred_properties(
    pool: AttackPool, traits: Sequence[Trait], roles: Roles, seed: int
) -> Inference | None:
    """Return how far the means of properties over samples follow those over the training set.

    Properties are whether a trait has a value, and the main components of sizes and counts; f are
    their means over training graphs, over samples, and over all real graphs. The advantage is the
    slope of f_samples - f_real over f_train - f_real, each property weighted by the inverse of its
    variance: 0 where samples follow the real graphs as a whole, 1 where they follow the training
    set all the way. If training and held-out graphs are alike, its mean over all ways to choose as
    many training graphs is 0 whatever the samples are, so that the spread over such choices says
    what is chance.

    Returns:
        The outcome; None if nothing differs between real graphs, or there are too few.
    """
    if not roles.sample_K.size or roles.other_H.size < 2 or roles.member_T.size < 2:
        return None
    values = [_values(trait.code_P, roles.real_G) for trait in traits]
    x_PV = np.concatenate([*values, _clipped(pool.components, roles.real_G)], axis=1)
    real_V, variance_V = x_PV[roles.real_G].mean(axis=0), x_PV[roles.real_G].var(axis=0)
    made_V = x_PV[roles.sample_K].mean(axis=0) - real_V
    differs_V = variance_V > 1e-9
    weight_V = np.where(differs_V, 1 / np.where(differs_V, variance_V, 1), 0)
    rng = numpy_generator(seed, "properties")
    size = roles.member_T.size
    drawn = (rng.permutation(roles.real_G)[:size] for _ in range(PROPERTY_RELABELINGS))
    train_RV = np.stack([x_PV[rows].mean(axis=0) for rows in (roles.member_T, *drawn)]) - real_V
    length = float((weight_V * train_RV[0] ** 2).sum())
    if length <= 0:
        return None
    along_R = train_RV @ (weight_V * made_V) / length
    return Inference.from_half_width(
        "properties",
        "frequencies of families, sizes and other traits (1 - mean error)",
        _accuracies(np.concatenate(values, axis=1), values, roles),
        float(along_R[0]),
        NORMAL_95 * float(along_R[1:].std()),
        margin=PROPERTY_MARGIN,
        roles=roles,
    )


def _values(code_P: np.ndarray, real_G: np.ndarray) -> np.ndarray:
    """Return which graph has which value of a trait, float64 (P, V); classes of many values."""
    distinct = np.unique(code_P[real_G])
    if distinct.size > CLASSES:
        cuts = np.unique(np.quantile(code_P[real_G], np.linspace(0, 1, CLASSES + 1)[1:-1]))
        code_P = np.searchsorted(cuts, code_P)
        distinct = np.unique(code_P[real_G])
    return (code_P[:, None] == distinct).astype(float)


def _clipped(x_PC: np.ndarray, real_G: np.ndarray) -> np.ndarray:
    mean_C, spread_C = x_PC[real_G].mean(axis=0), x_PC[real_G].std(axis=0)
    return np.clip((x_PC - mean_C) / np.where(spread_C > 1e-9, spread_C, 1), -CLIP, CLIP)


def _accuracies(
    x_PV: np.ndarray, values: Sequence[np.ndarray], roles: Roles
) -> tuple[float, float, float]:
    """Return 1 - mean error of frequencies: of training graphs, of held-out ones, and blind.

    The blind guess knows only which values exist.
    """
    train_V, held_V, made_V = (
        x_PV[rows].mean(axis=0) for rows in (roles.member_T, roles.other_H, roles.sample_K)
    )
    blind_V = np.concatenate([np.full(part.shape[1], 1 / part.shape[1]) for part in values])
    pairs = ((made_V, train_V), (made_V, held_V), (blind_V, train_V))
    of_train, of_held, blind = (1 - float(np.abs(one - other).mean()) for one, other in pairs)
    return of_train, of_held, blind


MIN_REFERENCE = 4
"""Held-out graphs of a fold that an attack needs to compare with.

What it makes of fewer varies more than the interval allows for (docs/dev/decisions.md,
"Cross-fitting").
"""


def all_attacks(pool: AttackPool) -> tuple[Attack, ...]:
    """Return every attack on the samples of a pool."""
    *distances, motifs = tally_attacks(pool)
    return (*distances, CalibratedClassifier(pool), motifs, Reconstruction(pool))


def tally_attacks(pool: AttackPool) -> tuple[TallyAttack, ...]:
    """Return the attacks that use each sample once."""
    programs = (NearestProgram(pool),) if pool.measured else ()
    return NearestSample(pool), DensityRatio(pool), *programs, UniqueMotifs(pool)


def attack_outcomes(attacks: Sequence[Attack], roles: Roles, seed: int) -> tuple[AttackResult, ...]:
    """Return what each attack finds, beside what it finds where nothing can leak."""
    return tuple(
        one
        for attack in attacks
        for one in outcome_of(
            attack, attack.folds(roles, seed), roles, seed, attack.fractions(roles)
        )
    )


@dataclass(frozen=True, eq=False)
class Fold:
    """A generator of several, which was trained on all real graphs but those of its fold.

    Attributes:
        pool: Its training graphs, those of its fold, and its samples.
        number_G: Number of each real graph of the pool among those of all folds.
    """

    pool: AttackPool
    number_G: np.ndarray


def cross_fitted_attacks(
    folds: Sequence[Fold], run_G: np.ndarray, seed: int
) -> tuple[AttackResult, ...]:
    """Return what each attack finds over all folds, in each of which other graphs are held out.

    Every graph is a member for most generators and a held-out one for one of them, so that an
    attack has as many of both as there are graphs. Pairs are compared within a fold. ``run_G`` is
    the run of each graph of all folds, numbered from 0; runs are resampled.
    """
    found: dict[str, tuple[Attack, list[ModelScores], list[ModelScores]]] = {}
    for fold in folds:
        for attack in all_attacks(fold.pool):
            _, scored, posing = found.setdefault(attack.name, (attack, [], []))
            scored += _scored(attack, fold, fold.pool.roles, run_G.size, seed)
            for roles in fold.pool.roles.honest(seed):
                posing += _scored(attack, fold, roles, run_G.size, seed)
    what = "half of the graphs of each fold pose as samples"
    results = []
    for attack, scored, posing in found.values():
        result = pooled_attack(attack.name, attack.description, scored, run_G, seed)
        if result is not None:
            holdout = pooled_attack(attack.name, what, posing, run_G, seed)
            results.append(replace(result, holdout=holdout))
    return tuple(results)


def _scored(
    attack: Attack, fold: Fold, roles: Roles, graphs: int, seed: int
) -> Iterator[ModelScores]:
    found = attack.folds(roles, seed)
    others = [roles.other_H]
    if len(found) > 1:  # half of the held-out graphs are what the attacker knows
        others = [rest for _, rest in roles.halves(seed)]
        if min(rest.size for rest in others) < MIN_REFERENCE:
            return
    for (member_T, other_H), rows in zip(found, others, strict=False):
        score_G, member_G = np.full(graphs, np.nan), np.zeros(graphs, dtype=bool)
        member_G[fold.number_G[roles.member_T]] = True
        score_G[fold.number_G[roles.member_T]] = member_T
        score_G[fold.number_G[rows]] = other_H
        yield ModelScores(score_G, member_G, shares_reference=len(found) > 1)


def outcome_of(
    attack: Attack,
    folds: Sequence[Scores],
    roles: Roles,
    seed: int,
    fractions: tuple[float, float] | None,
) -> tuple[AttackResult, ...]:
    """Return what scores say, beside the same attack where nothing can leak.

    There is no outcome without scores. Of samples in ``roles`` the number alone matters.
    """
    if not folds:
        return ()
    found = attack_by_scores(attack.name, attack.description, folds, seed)
    found = replace(found, fractions=fractions)
    honest = roles.honest(seed)
    posing = [fold for each in honest for fold in attack.folds(each, seed)]
    if not posing:
        return (found,)
    what = f"{honest[0].sample_K.size} held-out graphs pose as samples"
    return (replace(found, holdout=attack_by_scores(attack.name, what, posing, seed)),)


SHARING = ("calibrated_classifier", "unique_motifs", "reconstruction", "model", "properties")
WIDER = NormalDist().inv_cdf(1 - 0.025 / len(SHARING)) / NORMAL_95
"""How much wider an interval is that holds for all attacks of ``SHARING`` at once."""


def significant_after_correction(found: AttackResult | Inference) -> bool:
    """Return whether an attack succeeds, those run beside it considered."""
    if not found.leaks:
        return False
    if isinstance(found, Inference):
        return found.advantage - WIDER * (found.advantage - found.interval.low) > 0
    wider = WIDER if found.name in SHARING else 1.0
    return found.auc - wider * (found.auc - found.interval.low) > CHANCE
