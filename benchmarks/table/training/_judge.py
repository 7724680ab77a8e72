"""What is said of a draw of samples: similarity, copies, new neighborhoods, what it teaches.

Shape letters: B graphs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from layerdag.dag.dag import DAG, graph_hashes
from layerdag.datasets.dataset import GraphDataset
from layerdag.evaluation.metrics.base import Metric, attribute_views, metrics_for
from layerdag.evaluation.metrics.descriptor_metrics import DESCRIPTORS
from layerdag.evaluation.metrics.neighborhoods import NEIGHBORHOOD_METRICS
from layerdag.evaluation.similarity import compare
from layerdag.graph.attributed_graph import LABEL, Split
from layerdag.surrogates.families.registry import FAMILIES
from layerdag.surrogates.scoring import scores
from layerdag.surrogates.targets import mask_attributes

from ..labels._parts import labels_of

SHAPE = ("nodes", "edges", "layers", "mean_width", "in_degree", "out_degree")
NOVELTY = "neighborhood_novelty:1"
FAMILY = "boosting"
RATED = ("pearson", "spearman")


@dataclass(frozen=True)
class Judge:
    """The real graphs that samples of all points of a table are held against.

    Attributes:
        data: All parts; the whole training part is the yardstick, however few a model saw.
        hidden: Attributes that surrogates may not see.
        split: Part that samples are held against.
    """

    data: GraphDataset
    hidden: Sequence[str] = field(default_factory=tuple)
    split: Split = "test"

    def figures(self, samples: Sequence[DAG], seen: Sequence[DAG]) -> dict[str, Any]:
        """Return the figures of a draw; without two graphs there is only their number.

        Args:
            samples: With their labels as conditions.
            seen: The training graphs, of which a sample may be a copy.
        """
        if len(samples) < 2:
            return {"samples": len(samples)}
        return {
            "samples": len(samples),
            **self.similarity(samples),
            "copied": copied(samples, seen),
            **self.taught(samples),
        }

    def similarity(self, samples: Sequence[DAG]) -> dict[str, Any]:
        """Return ratios of distances to real graphs, their mean, and new neighborhoods."""
        train, test = self.data.graphs["train"], self.data.graphs[self.split]
        views = attribute_views(self.data.schema)
        report = compare(train, test, samples, views, metrics=self._metrics(), replicates=2)
        found = {row.metric.name: row for row in report.rows}
        novel = found.pop(NOVELTY)
        ratios = {name: row.ratio for name, row in found.items() if row.ratio is not None}
        return {
            "ratios": {name: _rounded(ratio) for name, ratio in ratios.items()},
            "mean_ratio": _rounded(float(np.mean(list(ratios.values())))),
            "new_neighborhoods": _rounded(novel.generated.value),
            "new_neighborhoods_real": _rounded(novel.reference.value),
        }

    def taught(self, dags: Sequence[DAG]) -> dict[str, float | None]:
        """Return the scores on real graphs of boosted trees that were fitted to graphs."""
        schema = self.data.schema
        shown, test = (
            mask_attributes([dag for dag in part if LABEL in dag.conditions], schema, self.hidden)
            for part in (dags, self.data.graphs[self.split])
        )
        model = FAMILIES[FAMILY](shown, labels_of(shown), schema.sizes(), 0)
        found = scores(labels_of(test), model.predict(test))
        return {name: _rounded(float(found[name][0])) for name in RATED}

    def _metrics(self) -> list[Metric]:
        views = attribute_views(self.data.schema)
        wanted = {*SHAPE, NOVELTY, f"attribute:{self.data.schema.attributes[0].name}"}
        known = metrics_for((*DESCRIPTORS, *NEIGHBORHOOD_METRICS), views)
        return [metric for metric in known if metric.name in wanted]


def copied(samples: Sequence[DAG], seen: Sequence[DAG]) -> float:
    """Return the share of samples that are equal to a training graph."""
    known = set(graph_hashes(seen))
    return round(float(np.mean([word in known for word in graph_hashes(samples)])), 4)


def _rounded(value: float | None) -> float | None:
    """Return four decimals; None where there is no number, such as a correlation with 0."""
    return None if value is None or not np.isfinite(value) else round(value, 4)
