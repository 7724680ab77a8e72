"""The section on what the samples, and the weights, give away of the training graphs."""

from collections.abc import Iterator

from layerdag.evaluation.privacy import (
    FALSE_POSITIVE_RATE,
    MARGIN,
    Attack,
    DistanceToClosestRecord,
    Verdict,
)
from layerdag.report import ReportContent
from layerdag.report.sections._words import attack_words
from layerdag.viz import Markup, element, interval, joined, number, percent, section, table

Row = tuple[str, str, Markup | str, str, Markup, Markup]
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
        f"found at {FALSE_POSITIVE_RATE:.0%} false alarms",
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
    body = table(caption, head, rows, 1, 2, 3)
    return section("membership", "Membership attacks", body, element("p", note))


def _sample_rows(content: ReportContent) -> Iterator[Row]:
    """Yield the rows of each figure, by rising number of samples."""
    for row in content.leaks:
        yield _nearest_neighbor_row(f"{row.samples:,}", row.nearness)
    for place in range(max((len(row.attacks) for row in content.leaks), default=0)):
        for row in content.leaks:
            yield _attack_row(f"{row.samples:,}", row.attacks[place])


def _nearest_neighbor_row(samples: str, near: DistanceToClosestRecord) -> Row:
    """Return the cells of the share that is nearer to training graphs."""
    what = f"share of samples nearer to training, {near.compared} graphs on either side"
    return (
        "Nearer to training",
        samples,
        f"{number(near.dcr_share, 2)} {interval(near.interval)}",
        "",
        _pill(near.verdict, near.in_words()),
        element("span", what, class_="quiet"),
    )


def _attack_row(samples: str, attack: Attack) -> Row:
    """Return the cells of one attack."""
    return (
        attack_words(attack.name),
        samples or "the weights",
        f"{number(attack.auc, 2)} {interval(attack.interval)}",
        percent(attack.true_positive_rate),
        _pill(attack.verdict, attack.in_words()),
        element("span", attack.description, class_="quiet"),
    )


def _pill(verdict: Verdict, words: str) -> Markup:
    """Return a verdict in its color, with what it lacks below."""
    summary, _, lacking = words.partition(" (")
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
