"""One color for each kind of work on the whole page."""

from layerdag.report import ReportContent
from layerdag.viz import CLASS_COLORS, classes_by_size


def colors_of(content: ReportContent) -> dict[str, int]:
    """Return the color slot of each class of nodes and of each kind of work on a timeline."""
    drawn = (*content.pictures, *(p for n in content.neighbors for p in (n.real, n.sample)))
    slot_of = classes_by_size(drawn)
    for job in content.timelines:
        for kind in (kind for lane in job.lanes for kind in lane.kind_S):
            slot_of.setdefault(kind, min(len(slot_of), CLASS_COLORS - 1))
    return slot_of
