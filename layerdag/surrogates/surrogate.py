"""Fit a family to one target of a data set, or to several: each by itself, or one network to all.

Shape letters: B graphs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, final

import msgspec
import numpy as np
import torch

from layerdag.dag.dag import DAG
from layerdag.datasets.conversion import GraphLike
from layerdag.datasets.dataset import GraphDataset, GraphSplit
from layerdag.datasets.encoding import encoded, translated
from layerdag.errors import CheckpointError, UsageError
from layerdag.graph.attributed_graph import LABEL, Split
from layerdag.runtime.settings import did_you_mean, shorten
from layerdag.schema.schema import GraphSchema
from layerdag.surrogates.families.base import SurrogateModel
from layerdag.surrogates.families.registry import (
    FAMILIES,
    fit_shared_with,
    fit_with,
)
from layerdag.surrogates.files import (
    SavedSurrogate,
    card,
    further_folder,
    load_further,
    load_notes,
    load_surrogate,
    save_surrogate,
)
from layerdag.surrogates.scoring import (
    LEVEL,
    MIN_CALIBRATED,
    SCORES,
    Calibration,
    Predictions,
    SurrogateScores,
    by_group,
    evaluation,
    scores,
)
from layerdag.surrogates.targets import labeled, mask_attributes, targets, unlabeled

MAX_NEW_CODES = 0.05
"""Fraction of nodes with codes that no graph of the fit has, above which a graph is unfamiliar."""


@dataclass(frozen=True)
class SeenCodes:
    """Sizes and codes that occur in the graphs of a fit.

    Attributes:
        codes: Codes of each attribute that occur, ascending.
    """

    fewest: int
    most: int
    codes: list[list[int]]

    @classmethod
    def from_dags(cls, dags: Sequence[DAG]) -> "SeenCodes":
        """Return what occurs in these graphs, at least one."""
        sizes = [dag.num_nodes for dag in dags]
        x_NA = torch.cat([dag.x_NA for dag in dags])
        codes = [column.unique().tolist() for column in x_NA.T]
        return cls(min(sizes), max(sizes), codes)

    @classmethod
    def from_dict(cls, data: object) -> "SeenCodes | None":
        """Return what ``asdict`` made; None for anything else."""
        try:
            return msgspec.convert(data, cls)
        except msgspec.ValidationError:
            return None

    def outside(self, dag: DAG, schema: GraphSchema) -> str:
        """Return in a phrase what of a graph no graph of the fit was like, "" for nothing."""
        found = []
        if not self.fewest <= dag.num_nodes <= self.most:
            found.append(f"{dag.num_nodes:,} nodes, fitted on {self.fewest:,} to {self.most:,}")
        for attribute, column_N, known in zip(
            schema.attributes, dag.x_NA.T, self.codes, strict=False
        ):
            new_N = ~torch.isin(column_N, torch.tensor(known, dtype=torch.int64))
            if dag.num_nodes and float(new_N.float().mean()) > MAX_NEW_CODES:
                found.append(
                    f"{float(new_N.float().mean()):.0%} of the nodes have a '{attribute.name}' "
                    "that no graph of the fit has"
                )
        return "; ".join(found)


@dataclass(frozen=True, eq=False)
class KnownTargets:
    """Graphs with some of several targets.

    Attributes:
        target_B: By name, float64, NaN where a graph has none.
    """

    dags: Sequence[DAG]
    target_B: Mapping[str, np.ndarray]

    @classmethod
    def from_dags(
        cls, dags: Sequence[DAG], schema: GraphSchema, names: Sequence[str], exclude: Sequence[str]
    ) -> "KnownTargets":
        """Return the graphs that have a target, some of their attributes excluded.

        Raises:
            DataError: If no graph has one of the targets.
            UsageError: If a target is not finite, or an attribute is not in the schema.
        """
        columns = {name: targets(dags, name) for name in names}
        for name, target_B in columns.items():
            given = [isinstance(dag.conditions.get(name), int | float) for dag in dags]
            if not any(given):
                raise unlabeled(name)
            if strange := int((~np.isfinite(target_B[given])).sum()):
                raise UsageError(
                    f"{strange} graphs have a '{name}' that is not finite; label them, or leave "
                    "the label of these out."
                )
        kept = np.flatnonzero(np.any([np.isfinite(y_B) for y_B in columns.values()], axis=0))
        seen = mask_attributes([dags[i] for i in kept.tolist()], schema, exclude)
        return cls(seen, {name: target_B[kept] for name, target_B in columns.items()})

    def with_target(self, name: str) -> tuple[list[DAG], np.ndarray]:
        """Return the graphs that have one of the targets, and these targets."""
        row_b = np.flatnonzero(np.isfinite(self.target_B[name]))
        return [self.dags[i] for i in row_b.tolist()], self.target_B[name][row_b]


def notes_of(data: GraphDataset, known: KnownTargets, target: str, seed: int) -> dict[str, Any]:
    """Return what a surrogate of one target was fitted on."""
    dags, _ = known.with_target(target)
    return {
        "data": data.name,
        "fingerprint": data.fingerprint,
        "seed": seed,
        "train": len(dags),
        "split": data.split.to_dict(),
        "seen": asdict(SeenCodes.from_dags(dags)),
    }


def calibration_of(
    model: SurrogateModel, data: GraphDataset, target: str, exclude: Sequence[str]
) -> Calibration | None:
    """Return the errors on the validation part of a data set."""
    val = data.graphs["val"]
    target_S = targets(val, target)
    known_s = np.flatnonzero(np.isfinite(target_S))
    if not known_s.size:
        return None
    seen = mask_attributes([val[i] for i in known_s.tolist()], data.schema, exclude)
    return Calibration.measure(target_S[known_s], model.predict(seen), model.spread(seen))


LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Levels of the intervals whose coverage is measured."""


@final
@dataclass(frozen=True, eq=False)
class FittedSurrogate:
    """A fitted model that predicts a number, such as the step time, from a graph.

    Attributes:
        schema: What the codes of its graphs mean.
        target: Name of the condition that it predicts.
        excluded: Node attributes that it does not see.
        calibration: Its errors on the validation part, from which intervals are made; None where
            that part has too few graphs with the target.
        others: Surrogates of further targets, of the same graphs and schema.
    """

    model: SurrogateModel
    schema: GraphSchema
    target: str = LABEL
    excluded: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    calibration: Calibration | None = None
    others: tuple["FittedSurrogate", ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The conditions that it predicts, its own first."""
        return (self.target, *(other.target for other in self.others))

    def __repr__(self) -> str:
        """Return family, targets and whether there are intervals, not the weights."""
        intervals = "no intervals" if self.calibration is None else "with intervals"
        predicts = shorten(", ".join(self.targets), 60)
        return f"FittedSurrogate({self.model.family!r}, predicts {predicts}, {intervals})"

    def for_target(self, target: str) -> "FittedSurrogate":
        """Return the surrogate of one of several targets. Raises UsageError if there is none."""
        for one in (self, *self.others):
            if one.target == target:
                return one
        raise UsageError(
            f"The surrogate does not predict '{target}'.{did_you_mean(target, self.targets)} It "
            f"predicts {', '.join(self.targets)}."
        )

    @classmethod
    def fit(
        cls,
        data: GraphDataset,
        family: str = "boosting",
        *,
        graphs: Iterable[GraphLike] | None = None,
        target: str | Sequence[str] = LABEL,
        exclude: Sequence[str] = (),
        seed: int = 0,
        settings: Mapping[str, int | float] | None = None,
        shared: bool = False,
    ) -> "FittedSurrogate":
        """Fit on the training part of a data set, and calibrate intervals on the validation part.

        Args:
            data: The data set.
            family: "boosting" (trees on graph statistics), "message_passing", or "stacked", an
                ensemble of both.
            graphs: What to fit on instead of the training part, such as samples.
            target: Condition to predict, or several, of which each graph may have some: "predict"
                and "evaluate" are then those of the first, ``of(name)`` gives the others.
            exclude: Node attributes to exclude; "duration" where the durations reveal the
                target.
            seed: Of the fit.
            settings: In place of the family's defaults, such as ``{"depth": 6}``; not of "stacked".
            shared: Whether one network predicts all targets, instead of a model for each; of
                "message_passing".

        Raises:
            UsageError: If there is no such family, setting or attribute, the family has no network
                to share, or there are fewer than two graphs with a target.
            DataError: If no graph has the target.
        """
        if family not in FAMILIES:
            raise UsageError(
                f"There is no family of surrogates '{family}'.{did_you_mean(family, FAMILIES)} "
                f"Known are {', '.join(FAMILIES)}."
            )
        names = (target,) if isinstance(target, str) else tuple(dict.fromkeys(target))
        if not names:
            raise UsageError("A surrogate predicts something; name at least one target.")
        fit: Callable[..., Any] = FAMILIES[family]
        if shared or settings:
            fit = (fit_shared_with if shared else fit_with)(family, settings or {})
        dags = data.graphs["train"] if graphs is None else encoded(graphs, data.schema)
        known = KnownTargets.from_dags(dags, data.schema, names, exclude)
        sizes = data.schema.sizes()
        if shared:
            models = fit(known.dags, known.target_B, sizes, seed=seed)
        else:
            models = tuple(fit(*known.with_target(name), sizes, seed) for name in names)
        first, *others = (
            cls(
                model,
                data.schema,
                name,
                tuple(exclude),
                notes_of(data, known, name, seed),
                calibration_of(model, data, name, exclude),
            )
            for name, model in zip(names, models, strict=True)
        )
        return replace(first, others=tuple(others))

    @classmethod
    def load(cls, folder: str | Path) -> "FittedSurrogate":
        """Read what ``save`` or ``layerdag surrogate fit`` wrote.

        Raises:
            CheckpointError: If a file is missing, damaged, or of another format.
            UsageError: If it was saved without a schema.
        """
        folder = Path(folder)
        first = cls._of_files(folder, load_surrogate(folder))
        notes = dict(first.notes)
        count = notes.pop("further_targets", 0)
        if not isinstance(count, int):
            raise CheckpointError(f"{folder}: the number of targets is damaged; fit it again.")
        others = tuple(
            cls._of_files(further_folder(folder, index), load_further(folder, index, first.model))
            for index in range(count)
        )
        return replace(first, notes=notes, others=others)

    @classmethod
    def _of_files(cls, folder: Path, model: SurrogateModel) -> "FittedSurrogate":
        notes = load_notes(folder)
        if "schema" not in notes:
            raise UsageError(
                f"{folder}: was saved without a schema, so graphs cannot be encoded for it; fit it "
                "with 'layerdag surrogate fit'."
            )
        schema = GraphSchema.from_dict(notes.pop("schema"))
        target = str(notes.pop("target", LABEL))
        excluded = notes.pop("excluded", ())
        calibration = Calibration.from_dict(notes.pop("calibration", None))
        names = tuple(str(name) for name in excluded)
        return cls(model, schema, target, names, notes, calibration)

    def predict(self, graphs: Iterable[GraphLike]) -> np.ndarray:
        """Return one prediction per graph, float64 (B,), in the unit of the training targets.

        Args:
            graphs: Samples, workloads, attributed graphs, paths of these, or ``DAG`` objects with
                codes of this surrogate's schema.

        Raises:
            DataError: If a file cannot be read, or a graph does not fit the schema.
        """
        return self.model.predict(self._seen(encoded(graphs, self.schema)))

    def predict_intervals(self, graphs: Iterable[GraphLike], level: float = LEVEL) -> Predictions:
        """Return one prediction per graph with an interval that is to hold the target.

        Args:
            graphs: As ``predict`` takes them.
            level: Fraction of graphs whose interval is to hold the target, if they come from where
                the calibration graphs came from.

        Raises:
            UsageError: If the surrogate has no calibration, or one of too few graphs for the level.
            DataError: If a file cannot be read, or a graph does not fit the schema.
        """
        if self.calibration is None:
            raise UsageError(
                "The surrogate has no calibration, so it gives no intervals: its data set had "
                f"fewer than {MIN_CALIBRATED} validation graphs with '{self.target}'. "
                "Fit it again on data with a validation part."
            )
        seen = self._seen(encoded(graphs, self.schema))
        return self.calibration.around(self.model.predict(seen), self.model.spread(seen), level)

    def out_of_distribution(self, graphs: Iterable[GraphLike]) -> list[str]:
        """Return why each graph is out of distribution; "" where it is not.

        Intervals promise nothing there. Raises as ``predict``.
        """
        known = SeenCodes.from_dict(self.notes.get("seen"))
        seen = self._seen(encoded(graphs, self.schema))
        return [known.outside(dag, self.schema) if known else "" for dag in seen]

    def prediction_rows(
        self, names: Sequence[str], dags: Sequence[DAG], level: float = LEVEL
    ) -> list[dict[str, Any]]:
        """Return for each named graph the first target with its interval, and ``others``."""
        columns = [one._columns(dags, level) for one in (self, *self.others)]
        rows = []
        for index, (name, strange) in enumerate(
            zip(names, self.out_of_distribution(dags), strict=True)
        ):
            first, *others = ({key: one[key][index] for key in one} for one in columns)
            row: dict[str, Any] = {"path": name, self.target: first.pop("value"), **first}
            row["unfamiliar"] = strange
            if others:
                row["others"] = dict(zip(self.targets[1:], others, strict=True))
            rows.append(row)
        return rows

    def _columns(self, dags: Sequence[DAG], level: float) -> dict[str, list[float]]:
        if self.calibration is None:
            return {"value": self.predict(dags).tolist()}
        found = self.predict_intervals(dags, level)
        ends = {"low": found.low_B.tolist(), "high": found.high_B.tolist()}
        return {"value": found.value_B.tolist(), **ends, "level": [level] * len(dags)}

    def evaluate(
        self, data: GraphDataset, split: Split = "test", by: str | None = None
    ) -> SurrogateScores:
        """Return every score with an interval, and how often prediction intervals hold the target.

        ``by`` is a condition, such as "family", whose values group the graphs; each group of at
        least five is scored, too.

        Raises:
            DataError: If no graph of that part has the target.
            UsageError: If none has the condition ``by``.
        """
        dags = translated(data.graphs[split], data.schema, self.schema)
        known = labeled(dags, self.schema, self.target, self.excluded)
        names = sorted({name for dag in known.dags for name in dag.conditions})
        if by is not None and by not in names:
            raise UsageError(
                f"No graph of the {split} part has a condition '{by}'.{did_you_mean(by, names)} "
                f"Known: {', '.join(names)}."
            )
        predicted_B = self.model.predict(known.dags)
        intervals = []
        if self.calibration is not None:
            spread_B, highest = self.model.spread(known.dags), self.calibration.highest_level
            intervals = [
                self.calibration.around(predicted_B, spread_B, level)
                for level in LEVELS
                if level <= highest
            ]
        found = evaluation(self.target, known.target_B, predicted_B, intervals)
        if by is None:
            return found
        group_B = [str(dag.conditions.get(by, "unknown")) for dag in known.dags]
        return by_group(found, group_B, known.target_B, predicted_B, intervals)

    def score(self, data: GraphDataset, split: Split = "test") -> dict[str, float]:
        """Return correlations and errors on a part of a data set, by the names of ``SCORES``.

        Raises:
            DataError: If no graph of that part has the target.
        """
        dags = translated(data.graphs[split], data.schema, self.schema)
        known = labeled(dags, self.schema, self.target, ())
        found = scores(known.target_B, self.predict(known.dags))
        return {name: float(values_R[0]) for name, values_R in found.items()}

    def scored(self, data: GraphDataset) -> "FittedSurrogate":
        """Return the surrogate with scores on the test part in its notes, and so on its card.

        So do those of its further targets.
        """
        found = self.evaluate(data)
        figures = {score.name: found.scores[score.name].value for score in SCORES}
        evaluated = {"test": found.graphs, "scores": figures, "evaluation": found.to_dict()}
        others = tuple(one.scored(data) for one in self.others)
        return replace(self, notes={**self.notes, **evaluated}, others=others)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the surrogate with its schema to a directory, whole or not at all.

        Raises:
            UsageError: If something stands there that may not be replaced.
        """
        first, *further = (one._saved() for one in (self, *self.others))
        notes = {**first.notes, **({"further_targets": len(further)} if further else {})}
        save_surrogate(
            self.model, folder, notes, overwrite=overwrite, card=first.card, further=further
        )

    def _saved(self) -> SavedSurrogate:
        notes = {
            **self.notes,
            "target": self.target,
            "excluded": list(self.excluded),
            "schema": self.schema.to_dict(),
        }
        if self.calibration is not None:
            notes["calibration"] = self.calibration.to_dict()
        shared = any(other.model.shares_arrays(self.model) for other in self.others)
        where = "outputs of the same network" if shared else "a folder each"
        text = card(self.model.family, notes, self.targets[1:], where)
        return SavedSurrogate(self.model, notes, text)

    def _seen(self, dags: Sequence[DAG]) -> list[DAG]:
        return mask_attributes(dags, self.schema, self.excluded)


FEW = 50
"""Graphs below which all of them are fitted on, and none is kept for intervals."""


@final
class Surrogate:
    """A model that predicts a number, such as the step time, from a graph.

    Args:
        family: "boosting", "message_passing" or "stacked".
        exclude: Node attributes that it does not see.
        **settings: Of the family, such as ``depth=6``.

    Attributes:
        family: Of the model.
        fitted: What ``fit`` made; None before.
    """

    def __init__(
        self,
        family: str = "boosting",
        *,
        exclude: Sequence[str] = (),
        seed: int = 0,
        **settings: Any,
    ) -> None:
        if family not in FAMILIES:
            raise UsageError(
                f"There is no family of surrogates '{family}'.{did_you_mean(family, FAMILIES)} "
                f"Known are {', '.join(FAMILIES)}."
            )
        self.family = family
        self.fitted: FittedSurrogate | None = None
        self._exclude, self._seed, self._settings = tuple(exclude), seed, settings

    def fit(
        self,
        graphs: GraphDataset | Sequence[GraphLike],
        y: str | Sequence[float] = LABEL,
        *,
        shared: bool = False,
    ) -> "Surrogate":
        """Fit on the training part of a data set, or on graphs with a number each.

        Args:
            graphs: A data set, whose validation part calibrates intervals, or graphs of any kind;
                of ``FEW`` and more a tenth is kept for intervals.
            y: The condition to predict, or several, or a number for each graph.
            shared: Whether one network predicts several conditions.

        Returns:
            Itself.

        Raises:
            UsageError: If numbers and graphs are not as many, or a setting is unknown.
            DataError: If no graph has the condition.
        """
        if not isinstance(self, Surrogate):
            raise UsageError(
                'Surrogate.fit is a method: call Surrogate("boosting").fit(data), with the family '
                "in the constructor."
            )
        data, target = _labeled_data(graphs, y)
        self.fitted = FittedSurrogate.fit(
            data,
            self.family,
            target=target,
            exclude=self._exclude,
            seed=self._seed,
            settings=self._settings or None,
            shared=shared,
        )
        return self

    def predict(self, graphs: Iterable[GraphLike]) -> np.ndarray:
        """Return one prediction per graph; see ``FittedSurrogate.predict``."""
        return self._made().predict(graphs)

    def predict_intervals(self, graphs: Iterable[GraphLike], level: float = LEVEL) -> Predictions:
        """Return predictions with intervals; see ``FittedSurrogate.predict_intervals``."""
        return self._made().predict_intervals(graphs, level)

    def out_of_distribution(self, graphs: Iterable[GraphLike]) -> list[str]:
        """Return why each graph is out of distribution; "" where it is not."""
        return self._made().out_of_distribution(graphs)

    def evaluate(
        self, data: GraphDataset, split: Split = "test", by: str | None = None
    ) -> SurrogateScores:
        """Return every score with an interval; see ``FittedSurrogate.evaluate``."""
        return self._made().evaluate(data, split, by)

    def score(
        self,
        data: GraphDataset | Sequence[GraphLike],
        y: Sequence[float] | None = None,
        *,
        split: Split = "test",
    ) -> float:
        """Return Spearman's rank correlation of prediction and target; 1 is best.

        Args:
            data: A data set, or graphs.
            y: The target of each graph; of a data set its own.
            split: Part of the data set.

        Raises:
            DataError: If no graph of that part has the target.
        """
        made = self._made()
        if isinstance(data, GraphDataset):
            return made.score(data, split)["spearman"]
        if y is None:
            raise UsageError("Graphs are scored with their targets: score(graphs, y).")
        found = scores(np.asarray(y, dtype=np.float64), made.predict(data))
        return float(found["spearman"][0])

    def for_target(self, target: str) -> "Surrogate":
        """Return the surrogate of one of several targets. Raises UsageError if there is none."""
        return _holding(self._made().for_target(target))

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the surrogate with its schema to a folder; return its path.

        Raises:
            UsageError: If something stands there that may not be replaced.
        """
        self._made().save(folder, overwrite=overwrite)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> "Surrogate":
        """Read what ``save`` or ``layerdag surrogate fit`` wrote.

        Raises:
            CheckpointError: If a file is missing, damaged, or of another format.
        """
        return _holding(FittedSurrogate.load(folder))

    def __repr__(self) -> str:
        """Return family and what it predicts."""
        if self.fitted is None:
            return f"Surrogate({self.family!r}, not fitted)"
        predicts = shorten(", ".join(self.fitted.targets), 60)
        return f"Surrogate({self.family!r}, predicts {predicts})"

    def _made(self) -> FittedSurrogate:
        if self.fitted is None:
            raise UsageError("The surrogate is not fitted; call fit(data) first.")
        return self.fitted


def _holding(fitted: FittedSurrogate) -> Surrogate:
    surrogate = Surrogate(fitted.model.family, exclude=fitted.excluded)
    surrogate.fitted = fitted
    return surrogate


def _labeled_data(
    graphs: GraphDataset | Sequence[GraphLike], y: str | Sequence[float]
) -> tuple[GraphDataset, str | Sequence[str]]:
    asked: Sequence[object] = (y,) if isinstance(y, str) else y
    names = [word for word in asked if isinstance(word, str)]
    numbers = [float(one) for one in asked if isinstance(one, int | float | np.number)]
    if isinstance(graphs, GraphDataset):
        if numbers:
            raise UsageError(
                "A data set has its targets already: name the condition, as in fit(data, "
                '"label"), or give fit a list of graphs with their numbers.'
            )
        return graphs, tuple(names)
    raws = graphs if isinstance(graphs, GraphSplit) else list(graphs)
    split = (0.9, 0.1, 0.0) if len(raws) >= FEW else {"train": range(len(raws))}
    data = GraphDataset(raws, targets=numbers or None, split=split)
    return data, tuple(names) or LABEL
