"""The section on what the samples, and the weights, give away of the training graphs."""

from collections.abc import Iterator

from layerdag.evaluation.privacy import (
    FALSE_POSITIVE_RATE,
    LOW_RATES,
    MARGIN,
    Attack,
    DistanceToClosestRecord,
    Verdict,
)
from layerdag.report import ReportContent
from layerdag.report.sections._words import attack_words
from layerdag.viz import Markup, element, interval, joined, number, percent, section, table

Row = tuple[str, str, Markup | str, str, str, Markup, Markup]
_LOW = ", ".join(f"{100 * rate:g}%" for rate in LOW_RATES)
_CLASSES = {
    Verdict.LEAKS: "poor",
    Verdict.TOO_FEW: "fair",
    Verdict.REVERSED: "fair",
    Verdict.CHANCE: "good",
}


def membership(content: ReportContent) -> Markup | None:
    """Return the table of nearness and of membership attacks, by the number of samples."""
    rows = [*_sample_rows(content), *(_attack_row("", attack) for attack in content.weight_attacks)]
    if not rows:
        return None
    head = (
        "attack",
        "samples",
        "share or area",
        "on an honest holdout",
        f"TPR at {FALSE_POSITIVE_RATE:.0%}, {_LOW} FPR",
        "verdict",
        "what is measured",
    )
    caption = "How well training graphs can be distinguished from held-out ones"
    note = (
        f"{_counts(content)}Chance gives 0.5 everywhere; an area of 1 identifies every training "
        "graph. “No better than chance” is said only where the whole 95 % interval lies within "
        f"{MARGIN} "
        "of it, “too few graphs to tell” where it is wider than that and holds 0.5. What an attack "
        "does not find, another one may."
    )
    body = table(caption, head, rows, 1, 2, 3, 4)
    beside = (
        "Honest holdout: the same attack where nothing can leak. Half of the held-out graphs pose "
        "as samples, then the other half (for attacks on weights: as training graphs). A TPR that "
        "so few held-out graphs do not resolve is left out."
    )
    parts = [body, element("p", note), element("p", beside), *_inferences(content)]
    return section("membership", "Membership attacks", *parts)


def _inferences(content: ReportContent) -> Iterator[Markup]:
    """Yield the table of what else is read of training graphs, if there is anything."""
    rows = [
        (
            attack_words(read.name),
            f"{read.samples:,}",
            percent(read.of_training),
            percent(read.of_held_out),
            percent(read.by_chance),
            f"{number(read.advantage, 2)} {interval(read.interval)}",
            _pill(read.verdict, read.in_words()),
            element("span", read.description, class_="quiet"),
        )
        for row in content.leaks
        for read in row.inferences
    ]
    if not rows:
        return
    head = (
        "figure", "samples", "of training graphs", "of held-out graphs", "by chance", "advantage",
        "verdict", "what is read",
    )  # fmt: skip
    caption = "What samples say of the jobs behind them"
    yield table(caption, head, rows, 1, 2, 3, 4, 5)
    yield element(
        "p",
        "Samples say of any job of their kind what such jobs are like. The advantage is what they "
        "say of training graphs beyond that: the difference, or, for properties of the whole set, "
        "how far the samples follow it where it happens to differ (1 is all the way).",
    )


def _sample_rows(content: ReportContent) -> Iterator[Row]:
    """Yield the rows of each figure, by rising number of samples."""
    for row in content.leaks:
        yield _nearest_neighbor_row(f"{row.samples:,}", row.nearness)
    names = dict.fromkeys(attack.name for row in content.leaks for attack in row.attacks)
    for name in names:
        for row in content.leaks:
            for attack in row.attacks:
                if attack.name == name:
                    yield _attack_row(f"{attack.sampled or row.samples:,}", attack)


def _nearest_neighbor_row(samples: str, near: DistanceToClosestRecord) -> Row:
    """Return the cells of the share that is nearer to training graphs."""
    what = f"share of samples nearer to training, {near.compared} graphs on either side"
    return (
        "Nearer to training",
        samples,
        f"{number(near.dcr_share, 2)} {interval(near.interval)}",
        "",
        "",
        _pill(near.verdict, near.in_words()),
        element("span", what, class_="quiet"),
    )


def _attack_row(samples: str, attack: Attack) -> Row:
    """Return the cells of one attack."""
    honest = attack.holdout
    reported = [rate.true_positive_rate for rate in attack.rates]
    rates = [percent(rate) for rate in (attack.true_positive_rate, *reported)]
    return (
        attack_words(attack.name),
        samples or "the weights",
        f"{number(attack.auc, 2)} {interval(attack.interval)}",
        "" if honest is None else f"{number(honest.auc, 2)} {interval(honest.interval)}",
        ", ".join(rates),
        _pill(attack.verdict, attack.in_words()),
        element("span", attack.description, class_="quiet"),
    )


def _pill(verdict: Verdict, text: str) -> Markup:
    """Return a verdict in its color, with what it lacks below."""
    summary, _, lacking = text.partition(" (")
    pill = element("span", summary, class_=f"verdict {_CLASSES[verdict]}")
    if not lacking:
        return pill
    below = element("span", lacking.rstrip(")"), class_="quiet")
    return joined([pill, Markup("<br>"), below])


def _counts(content: ReportContent) -> str:
    """Return how many real graphs were scored."""
    for row in content.leaks:
        for attack in row.attacks:
            return f"{attack.members} training and {attack.non_members} held-out graphs. "
    return ""
