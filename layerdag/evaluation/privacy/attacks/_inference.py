"""What samples say of training jobs besides which they were: the outcome of one such attack."""

from dataclasses import dataclass

from layerdag.evaluation.metrics import Interval
from layerdag.evaluation.privacy import CHANCE, MARGIN, Need, Verdict, round_up


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
        samples: Number of samples.
        verdict: What the interval says.
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
    need: Need | None

    @classmethod
    def of(
        cls,
        name: str,
        description: str,
        read: tuple[float, float, float],
        advantage: tuple[float, float],
        *,
        margin: float,
        samples: int,
        held_out: int,
    ) -> "Inference":
        """Return the outcome.

        Args:
            name: Of the attack.
            description: What is read.
            read: How well of training graphs, of held-out ones, and by chance.
            advantage: Its value, and the half-width of its 95 % interval.
            margin: Of "no better than chance".
            samples: Number of samples.
            held_out: Number of held-out graphs.
        """
        value, half = advantage
        scale = MARGIN / margin
        verdict = Verdict.of(
            Interval(CHANCE + scale * (value - half), CHANCE + scale * (value + half))
        )
        allowed = max(abs(value), margin - abs(value))
        need = Need("held-out graphs", held_out, round_up(held_out * (half / allowed) ** 2))
        return cls(
            name=name,
            description=description,
            of_training=read[0],
            of_held_out=read[1],
            by_chance=read[2],
            advantage=value,
            interval=Interval(value - half, value + half),
            margin=margin,
            samples=samples,
            verdict=verdict,
            need=need if verdict is Verdict.TOO_FEW else None,
        )

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
