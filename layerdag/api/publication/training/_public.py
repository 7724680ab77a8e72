"""Public graphs that a student learns beside the samples: what it started from is not forgotten."""

from collections.abc import Sequence
from dataclasses import replace

from layerdag._runtime import numpy_generator
from layerdag.api.publication import ReleaseSettings
from layerdag.api.publication.reading import read_jobs
from layerdag.codec import AttributedGraph
from layerdag.datasets import GraphDataset

MOST_PUBLIC = 400


def public_graphs(settings: ReleaseSettings) -> tuple[AttributedGraph, ...]:
    """Return at most ``MOST_PUBLIC`` graphs of the folder of public ones; none without a folder.

    Args:
        settings: Of the release; its seed draws the graphs, where there are more.

    Raises:
        DataError: If nothing in the folder can be read.
    """
    if settings.public is None:
        return ()
    found = read_jobs(replace(settings, traces=settings.public, public=None, labels=None)).graphs
    rng = numpy_generator(settings.seed, "public graphs")
    return tuple(found[i] for i in sorted(rng.permutation(len(found))[:MOST_PUBLIC].tolist()))


def with_public(samples: GraphDataset, public: Sequence[AttributedGraph]) -> GraphDataset:
    """Return samples with public graphs to train on, of each kind about as many.

    Schema and validation stay those of the samples. Public graphs with a word that no sample has
    are left out. Samples are repeated where there are fewer of them.

    Args:
        samples: What a student learns from.
        public: In words and numbers.
    """
    coded = GraphDataset.with_schema("public", samples.schema, {"train": public})
    if not coded.graphs["train"]:
        return samples
    own = samples.graphs["train"]
    times = max(round(len(coded.graphs["train"]) / len(own)), 1)
    graphs = (*tuple(own) * times, *coded.graphs["train"])
    names = (*samples.names["train"] * times, *coded.names["train"])
    return replace(
        samples,
        graphs={**samples.graphs, "train": graphs},
        names={**samples.names, "train": names},
    )
