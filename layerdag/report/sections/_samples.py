"""Sections that show single jobs: samples beside their neighbors, and timelines."""

from layerdag.report import Neighbors, ReportContent
from layerdag.report.charts import timeline_chart
from layerdag.report.sections._colors import colors_of
from layerdag.viz import (
    Markup,
    class_legend,
    draw,
    element,
    joined,
    number,
    section,
)


def neighbors(content: ReportContent) -> Markup | None:
    """Return each sample beside the real graph of its family that is most like it."""
    pairs = content.neighbors
    if not pairs:
        return None
    slot_of = colors_of(content)
    note = element(
        "p",
        "Each sample stands beside the real graph of the same family that is most like it, of all "
        "that were used for training or held out. A sample should be about as far from it as real "
        "graphs are from each other: much nearer would be a copy, much farther something that no "
        "such job looks like. Distances compare operators, sizes and neighborhoods of all nodes, "
        "not times: 0 is equal, 1.41 is nothing in common.",
    )
    parts = [_pair(pair, slot_of) for pair in pairs]
    return section(
        "neighbors", "Samples and their nearest real graphs", note, class_legend(slot_of),
        joined(parts),
    )  # fmt: skip


def _pair(pair: Neighbors, slot_of: dict[str, int]) -> Markup:
    """Return the drawings of a sample and its neighbor, with their distance."""
    usual = (
        ""
        if pair.usual is None
        else f"; real graphs of the family are {number(pair.usual)} from theirs, in the median"
    )
    caption = (
        f"Distance {number(pair.distance)} from the nearest of {pair.compared:,} real "
        f"graphs{usual}."
    )
    drawings = element(
        "div", draw(pair.sample, slot_of), draw(pair.real, slot_of), class_="grid-pictures"
    )
    heading = f"Family {pair.family}" if pair.family else "A sample and its neighbor"
    return element("div", element("h3", heading), element("p", caption), drawings, class_="pair")


def timelines(content: ReportContent) -> Markup | None:
    """Return when each rank of a real and of a sampled job computes and communicates."""
    if not content.timelines:
        return None
    slot_of = colors_of(content)
    shown = {kind for job in content.timelines for lane in job.lanes for kind in lane.kind_S}
    key = class_legend({name: slot for name, slot in slot_of.items() if name in shown})
    end_ms = max(job.duration_ms for job in content.timelines)
    figures = [timeline_chart(job, slot_of, end_ms) for job in content.timelines]
    hidden = [
        f"{job.title} has {job.ranks:,} ranks; the first ones are shown."
        for job in content.timelines
        if job.ranks > len({lane.name.rpartition(" ")[0] for lane in job.lanes})
    ]
    note = element(
        "p",
        f"When each rank computes and communicates, simulated on {content.simulated_on}. Both jobs "
        "have the same axis."
        if len(content.timelines) > 1
        else f"When each rank computes and communicates, simulated on {content.simulated_on}.",
    )
    return section(
        "timelines", "Timelines", note, key, element("div", *figures, class_="grid-pictures"),
        *(element("p", text, class_="quiet") for text in hidden),
    )  # fmt: skip
