"""Generators beside each other: their registry, V.U.N. and distances to real graphs.

A generator is an object with ``fit(data)``, which gets a ``GraphDataset``, and ``sample(num,
seed)``, which returns graphs: DAGs in codes of that data set's schema, ``AttributedGraph`` or
directed graphs of networkx, whose node attributes are words and numbers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.encoding import CodedSamples, coded
from layerdag.errors import UsageError
from layerdag.evaluation.metrics.base import (
    MetricResult,
    attribute_views,
)
from layerdag.evaluation.metrics.whole_programs import JOB_METRICS, jobs_beside
from layerdag.evaluation.similarity import (
    MIN_COMPARED,
    QualityReport,
    compare,
)
from layerdag.evaluation.validity import VUN, vun_of_codes
from layerdag.runtime.registry import Registry
from layerdag.runtime.rng import numpy_generator
from layerdag.runtime.terminal import stage

TRAINING = "training graphs"


@runtime_checkable
class GraphGenerator(Protocol):
    """What can be registered as a generator."""

    def fit(self, data: GraphDataset) -> Any:
        """Learn from ``data.graphs["train"]``."""

    def sample(self, num: int, seed: int) -> Iterable[Any]:
        """Return ``num`` graphs, the same ones for the same seed."""


def _check_generator(name: str, value: Any) -> None:
    if not (callable(getattr(value, "fit", None)) and callable(getattr(value, "sample", None))):
        raise UsageError(
            f"The generator '{name}' needs the methods fit(data) and sample(num, seed), found "
            f"{value!r:.80}."
        )


GENERATORS: Registry[Any] = Registry("generator", "layerdag.generators", _check_generator)
"""Generators by name: a class whose constructor needs nothing, or an object."""

G = TypeVar("G")


def register_generator(name: str) -> Callable[[G], G]:
    """Return a decorator that adds a class with ``fit`` and ``sample`` as the generator ``name``.

    Raises:
        UsageError: If a method is missing.
    """

    def registered(generator: G) -> G:
        GENERATORS.register(name, generator)
        return generator

    return registered


def fitted_generator(name: str, data: GraphDataset) -> GraphGenerator:
    """Return the generator ``name`` after it has learned from a data set.

    Raises:
        ConfigError: If nothing has that name.
    """
    found = GENERATORS.get(name)
    generator: GraphGenerator = found() if isinstance(found, type) else found
    generator.fit(data)
    return generator


@dataclass(frozen=True)
class GeneratorScore:
    """One set of samples.

    Attributes:
        report: Distances; None if no sample could be used.
        reasons: Why samples could not be used, a sentence each.
    """

    name: str
    graphs: int
    vun: VUN
    report: QualityReport | None
    reasons: tuple[str, ...] = ()

    @property
    def mean_ratio(self) -> float | None:
        """Mean over the distances of generated / real-to-real; 1 is as near as real graphs are."""
        rows = () if self.report is None else self.report.rows
        ratios = [row.ratio for row in rows if row.is_distance and row.ratio is not None]
        return sum(ratios) / len(ratios) if ratios else None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return {
            "name": self.name,
            "graphs": self.graphs,
            "vun": self.vun.to_dict(),
            "mean_ratio": self.mean_ratio,
            "similarity": None if self.report is None else self.report.to_dict(),
            "not_usable": list(self.reasons),
        }


@dataclass(frozen=True)
class SideBySide:
    """Sets of samples beside each other."""

    data: str
    train: int
    test: int
    seed: int
    scores: tuple[GeneratorScore, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return {
            "data": self.data,
            "train": self.train,
            "test": self.test,
            "seed": self.seed,
            "scores": [score.to_dict() | {"too_few": self.too_few(score)} for score in self.scores],
        }

    def too_few(self, score: GeneratorScore) -> bool:
        """Return whether there are too few graphs to judge how near samples are."""
        return min(self.test, score.graphs) < MIN_COMPARED

    def __str__(self) -> str:
        """Return a table with two columns, figure and ratio, for each set."""
        head = (
            f"{self.data}: {self.train} real training graphs and {self.test} real test graphs, "
            f"seed {self.seed}; 'real' is training against test graphs, a ratio of 1 is as near"
        )
        lines = [head, *_aligned([*self._shares(), *self._distances()])]
        if any(map(self.too_few, self.scores)):
            lines.append(
                f"too few to tell: ratios need {MIN_COMPARED} real test graphs and as many "
                "samples of a set"
            )
        return "\n".join(lines)

    def _shares(self) -> Iterable[tuple[str, ...]]:
        yield "", "real", *(cell for score in self.scores for cell in (score.name, "ratio"))
        yield (
            "graphs",
            str(self.test),
            *(cell for score in self.scores for cell in (str(score.graphs), "")),
        )
        for name in ("valid", "unique", "novel", "vun"):
            real = self.scores[0].vun.novel_real if name == "novel" else None
            cells = [c for score in self.scores for c in (str(getattr(score.vun, name)), "")]
            yield name, "" if real is None else str(real), *cells
        yield from self._kept_rules()

    def _kept_rules(self) -> Iterable[tuple[str, ...]]:
        name = JOB_METRICS[0].name
        rows = [
            next((row for row in score.report.rows if row.metric.name == name), None)
            if score.report
            else None
            for score in self.scores
        ]
        known = next((row for row in rows if row is not None and not row.reference.error), None)
        if known is not None:
            cells = [
                c for row in rows for c in (_counts(None if row is None else row.generated), "")
            ]
            yield "keep all whole-program rules", _counts(known.reference), *cells

    def _distances(self) -> Iterable[tuple[str, ...]]:
        reports = [score.report for score in self.scores]
        first = next((report for report in reports if report is not None), None)
        for place, row in enumerate(() if first is None else first.rows):
            cells: list[str] = []
            for report in reports:
                found = None if report is None else report.rows[place]
                cells += (
                    ["-", "-"]
                    if found is None
                    else [_number(found.generated.value), _number(found.ratio)]
                )
            yield row.metric.name, _number(row.reference.value), *cells
        means = [
            cell
            for score in self.scores
            for cell in ("", "too few" if self.too_few(score) else _number(score.mean_ratio))
        ]
        yield "mean ratio of distances", "", *means


def _counts(found: MetricResult | None) -> str:
    """Return "6 of 64" jobs, a dash where that is not known."""
    if found is None or found.error:
        return "-"
    return f"{found.breakdown['kept']:.0f} of {found.breakdown['jobs']:.0f}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        ).rstrip()
        for row in rows
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def score_generators(
    data: GraphDataset,
    sets: Mapping[str, Iterable[Any]],
    *,
    without: Sequence[str] = (),
    baseline: bool = False,
    max_graphs: int | None = None,
    seed: int = 0,
    replicates: int = 200,
) -> SideBySide:
    """Return V.U.N. and all distances of sets of samples, for a table.

    Args:
        data: Real graphs; samples are compared with its test graphs.
        sets: Samples of any kind by the name of the set, see ``vun``.
        without: Node attributes that do not count for V.U.N.
        baseline: Whether the training graphs themselves stand beside the samples.
        max_graphs: Most graphs of each set, real ones too, drawn at random.
        seed: Of the bootstrap and of that draw.
        replicates: Number of resamples.

    Raises:
        UsageError: If a set or the test part is empty.
    """
    train = _drawn(data.graphs["train"], max_graphs, seed, "train")
    test = _drawn(data.graphs["test"], max_graphs, seed, "test")
    if not test:
        raise UsageError(f"{data.name}: has no test graphs to compare with; give it a test part.")
    given: dict[str, Sequence[Any]] = {name: list(graphs) for name, graphs in sets.items()}
    samples = {name: coded(graphs, data.schema, data.renamed) for name, graphs in given.items()}
    if baseline:
        samples[TRAINING] = CodedSamples(tuple(train))
        given[TRAINING] = data.jobs.get("train", ())
    scores = []
    for name, found in samples.items():
        if not found.dags:
            raise UsageError(f"{name}: there is no graph; check the path.")
        dags = _drawn(found.dags, max_graphs, seed, name)
        found = CodedSamples(tuple(dags), found.reasons)
        with stage(f"scoring {name}"):
            share = vun_of_codes(train, found, held_out=test, schema=data.schema, without=without)
            report = None
            if found.usable:
                views = attribute_views(data.schema)
                made = [graph for graph in given[name] if graph is not None]
                real = (data.jobs.get("train", ()), data.jobs.get("test", ()))
                jobs = jobs_beside(
                    *(_drawn(part, max_graphs, seed, name) for part in (*real, made))
                )
                report = compare(
                    train, test, found.usable, views,
                    jobs=jobs, seed=seed, replicates=replicates,
                )  # fmt: skip
        scores.append(GeneratorScore(name, len(dags), share, report, found.reasons))
    return SideBySide(data.name, len(train), len(test), seed, tuple(scores))


def _drawn(dags: Sequence[Any], most: int | None, seed: int, label: str) -> list[Any]:
    if most is None or len(dags) <= most:
        return list(dags)
    order = numpy_generator(seed, "graphs", label).permutation(len(dags))[:most]
    return [dags[i] for i in sorted(order.tolist())]
