"""The section on what the samples give away of the training graphs."""

from layerdag.report.content import ReportContent
from layerdag.report.markup import Markup, element, interval, number, percent, section, table
from layerdag.validator.membership import FALSE_ALARMS


def membership(content: ReportContent) -> Markup | None:
    """Return the table of membership attacks."""
    if not content.attacks:
        return None
    rows = [
        (
            attack.name,
            f"{number(attack.auc, 2)} {interval(attack.interval)}",
            percent(attack.caught),
            f"{attack.members} / {attack.others}",
            element("span", attack.what, class_="quiet"),
        )
        for attack in content.attacks
    ]
    head = (
        "attack",
        "area under the curve",
        f"caught at {FALSE_ALARMS:.0%} false alarms",
        "training / held-out graphs",
        "score",
    )
    caption = "How well training graphs are told from other real graphs"
    note = (
        "An area of 0.5 is guessing, 1 knows every training graph; what an attack does not find, "
        "another one may."
    )
    body = table(caption, head, rows, 1, 2, 3)
    return section("membership", "Membership attacks", body, element("p", note))
