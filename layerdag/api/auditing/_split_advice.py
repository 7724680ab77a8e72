"""Are enough graphs held out for an audit of samples, and what to do where they are not?"""

from layerdag.datasets import GraphDataset
from layerdag.evaluation.privacy import CHANCE, MARGIN, chance_half_width, needed

REMEDY = (
    "To hold out more, give each graph its part in a column 'split' (train, val, test) of the "
    "label file, or train with a larger data.held_out (data=folder)."
)


def too_few_held_out(data: GraphDataset) -> str | None:
    """Return a warning if no audit of samples could end in "no better than chance", else None."""
    members, others = len(data.members), len(data.held_out)
    if not others:
        return (
            f"{data.name}: no graph is held out, so that an audit can compare samples with "
            f"nothing (layerdag audit). {REMEDY}"
        )
    half = chance_half_width(members, others)
    if half <= MARGIN:
        return None
    return (
        f"{data.name}: {others} graphs are held out (validation and test) beside {members} for "
        "training, too few for an audit of the samples (layerdag audit) to tell small "
        f"leaks from none: an attack shows only above an area of {CHANCE + half:.2f}, and about "
        f"{needed(CHANCE, half, others):,} held-out graphs are needed. {REMEDY}"
    )
