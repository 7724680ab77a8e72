"""The student: a model of the published samples alone, whose weights may be published with them.

Its weights are a function of the published files, of the public weights that it starts from, of
public graphs if there are some (``--public``), and of seeds. Nothing that the files do not hold can
therefore be read from the weights, whatever attack is run (post-processing); what they make is
convenience: further samples without another release.
"""

from collections.abc import Sequence

from layerdag._runtime import derive_seed
from layerdag.api.publication import STUDENT, ReleaseSettings, Work
from layerdag.api.publication.drawing import published_graphs
from layerdag.api.publication.training._public import with_public
from layerdag.api.publication.training._recipe import trained_once
from layerdag.codec import AttributedGraph
from layerdag.datasets import GraphDataset, Split
from layerdag.errors import DataError
from layerdag.sampling import GeneratedGraph
from layerdag.training import LoadedCheckpoint

VALIDATION_FRACTION = 0.15
LEAST_SAMPLES = 8
"""Samples below which no student is trained."""


def student_data(samples: Sequence[GeneratedGraph], seed: int) -> GraphDataset:
    """Return the published samples as a data set with a schema of its own.

    Args:
        samples: What is published; none is a copy of a real graph.
        seed: Of the split into training and validation.

    Raises:
        DataError: If there are too few.
    """
    graphs = list(published_graphs(samples))
    if len(graphs) < LEAST_SAMPLES:
        raise DataError(
            f"{len(graphs)} samples are published, and a student needs at least {LEAST_SAMPLES}; "
            "ask for more with --num."
        )
    order = sorted(range(len(graphs)), key=lambda i: derive_seed(seed, "student split", str(i)))
    held = max(round(VALIDATION_FRACTION * len(graphs)), 1)
    parts: dict[Split, list[AttributedGraph]] = {
        "train": [graphs[i] for i in sorted(order[held:])],
        "val": [graphs[i] for i in sorted(order[:held])],
    }
    return GraphDataset.build("samples", samples[0].schema.kind, parts)


def trained_student(
    settings: ReleaseSettings,
    data: GraphDataset,
    work: Work,
    seconds: float,
    public: Sequence[AttributedGraph] = (),
) -> LoadedCheckpoint:
    """Return the best checkpoint of a student; see ``trained_once``.

    Args:
        settings: Of the release.
        data: The published samples.
        work: The private folder.
        seconds: Most seconds that training may take.
        public: Public graphs that it learns beside them.
    """
    data = with_public(data, public)
    return trained_once(settings, data, work, seconds, stage="student", folder=STUDENT)
