"""What a user should know of a data set before a model learns it."""

from collections.abc import Iterator
from itertools import islice

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.folder import unknown_operators
from layerdag.statistics import CHANCE, MARGIN, chance_half_width, needed

_LOOKED_AT = 1000
"""Graphs at most that are searched for words that were not known."""
_REMEDY = (
    "To hold out more, give each graph its part in a column 'split' (train, val, test) of the "
    "label file, or train with a larger data.held_out (data=folder)."
)


def advice_on(data: GraphDataset) -> Iterator[str]:
    """Yield a sentence on each kind of words that were renamed or lost."""
    for name, table in data.renamed.items():
        yield (
            f"{len(table)} words of '{name}' are not public and were renamed, such as "
            f"{min(table)}; run.json in the run's folder says which is which, "
            "data.public_words=all keeps them."
        )
    graphs = list(islice(data.graphs["train"], _LOOKED_AT))
    unknown = sum(unknown_operators(data.schema, dag) for dag in graphs)
    if unknown:
        share = unknown / sum(dag.num_nodes for dag in graphs)
        yield (
            f"{100 * share:.1f} % of the training nodes have operators that are not public "
            "and stand as <other>; name those to keep in data.public_words, or set "
            "data.public_words=all."
        )


def too_few_held_out(data: GraphDataset) -> str | None:
    """Return a warning if no audit of samples could end in "no better than chance", else None."""
    members, others = len(data.members), len(data.held_out)
    if not others:
        return (
            f"{data.name}: no graph is held out, so that an audit can compare samples with "
            f"nothing (layerdag audit). {_REMEDY}"
        )
    half = chance_half_width(members, others)
    if half <= MARGIN:
        return None
    least = CHANCE + half
    shows = (
        "no attack can show"
        if least >= 1
        else f"an attack shows only above an AUROC of {least:.2f}"
    )
    return (
        f"{data.name}: {others} graphs are held out (validation and test) beside {members} for "
        "training, too few for an audit of the samples (layerdag audit) to tell small "
        f"leaks from none: {shows}, and about "
        f"{needed(CHANCE, half, others):,} held-out graphs are needed. {_REMEDY}"
    )
