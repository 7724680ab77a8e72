"""A surrogate as users have it: fitted on a data set, it predicts for graphs of any form."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from layerdag._runtime import did_you_mean
from layerdag.datasets import GraphDataset, GraphLike, Split, encoded, translated
from layerdag.datasets.schema import LABEL, GraphSchema
from layerdag.errors import UsageError
from layerdag.surrogates._files import load_notes, load_surrogate, save_surrogate
from layerdag.surrogates._inputs import hide as without_attributes, labeled
from layerdag.surrogates._scores import scores
from layerdag.surrogates.families import FAMILIES, SurrogateModel


@final
@dataclass(frozen=True, eq=False)
class Surrogate:
    """A fitted model that predicts a number, such as the step time, from a graph.

    Attributes:
        model: The fitted model.
        schema: What the codes of its graphs mean.
        target: Name of the condition that it predicts.
        excluded: Node attributes that it does not see.
        notes: Further facts that are saved beside it.
    """

    model: SurrogateModel
    schema: GraphSchema
    target: str = LABEL
    excluded: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        data: GraphDataset,
        family: str = "boosting",
        *,
        graphs: Iterable[GraphLike] | None = None,
        target: str = LABEL,
        exclude: Sequence[str] = (),
        seed: int = 0,
    ) -> "Surrogate":
        """Fit on the training part of a data set.

        Args:
            data: The data set.
            family: "boosting" (boosted trees on graph statistics) or "message_passing".
            graphs: What to fit on instead of the training part, such as samples.
            target: Condition to predict.
            exclude: Node attributes to exclude; "duration" where the durations reveal the
                target.
            seed: Of the fit.

        Raises:
            UsageError: If there is no such family or attribute, or there are fewer than two graphs.
            DataError: If no graph has the target.
        """
        if family not in FAMILIES:
            raise UsageError(
                f"There is no family of surrogates '{family}'.{did_you_mean(family, FAMILIES)} "
                f"Known are {', '.join(FAMILIES)}."
            )
        schema = data.schema
        dags = data.graphs["train"] if graphs is None else encoded(graphs, schema)
        known = labeled(dags, schema, target, exclude)
        model = FAMILIES[family](known.dags, known.target_B, schema.sizes(), seed)
        notes = {
            "data": data.name,
            "fingerprint": data.fingerprint,
            "seed": seed,
            "train": len(known.dags),
        }
        return cls(model, schema, target, tuple(exclude), notes)

    @classmethod
    def load(cls, folder: str | Path) -> "Surrogate":
        """Read what ``save`` or ``layerdag surrogate fit`` wrote.

        Raises:
            CheckpointError: If a file is missing, damaged, or of another format.
            UsageError: If it was saved without a schema.
        """
        model, notes = load_surrogate(folder), load_notes(folder)
        if "schema" not in notes:
            raise UsageError(
                f"{folder}: was saved without a schema, so graphs cannot be encoded for it; fit it "
                "with 'layerdag surrogate fit'."
            )
        schema = GraphSchema.from_dict(notes.pop("schema"))
        target = str(notes.pop("target", LABEL))
        excluded = notes.pop("excluded", notes.pop("hidden", ()))  # "hidden" in older ones
        return cls(model, schema, target, tuple(str(name) for name in excluded), notes)

    def predict(self, graphs: Iterable[GraphLike]) -> np.ndarray:
        """Return one prediction per graph, float64 (B,), in the unit of the training targets.

        Args:
            graphs: Samples, workloads, attributed graphs, paths of these, or ``DAG`` objects with
                codes of this surrogate's schema.

        Raises:
            DataError: If a file cannot be read, or a graph does not fit the schema.
        """
        dags = encoded(graphs, self.schema)
        return self.model.predict(without_attributes(dags, self.schema, self.excluded))

    def score(self, data: GraphDataset, split: Split = "test") -> dict[str, float]:
        """Return correlations and errors on a part of a data set, by the names of ``SCORES``.

        Raises:
            DataError: If no graph of that part has the target.
        """
        dags = translated(data.graphs[split], data.schema, self.schema)
        known = labeled(dags, self.schema, self.target, ())
        found = scores(known.target_B, self.predict(known.dags))
        return {name: float(values_R[0]) for name, values_R in found.items()}

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the surrogate with its schema to a directory, whole or not at all.

        Raises:
            UsageError: If something stands there that may not be replaced.
        """
        notes = {
            **self.notes,
            "target": self.target,
            "excluded": list(self.excluded),
            "schema": self.schema.to_dict(),
        }
        save_surrogate(self.model, folder, notes, overwrite=overwrite)
