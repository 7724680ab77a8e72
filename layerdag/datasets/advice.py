"""What a user should know of a data set before a model learns it."""

from collections.abc import Iterator
from itertools import islice

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.folder import unknown_operators

_LOOKED_AT = 1000
"""Graphs at most that are searched for words that were not known."""


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
