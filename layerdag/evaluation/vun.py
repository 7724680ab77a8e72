"""V.U.N.: how many generated graphs are valid, unique and novel, and all three at once.

The figure is that of SPECTRE (Martinkus et al., ICML 2022, arXiv 2204.01613), which DiGress (Vignac
et al., ICLR 2023, arXiv 2209.14734) and GraphGUIDE (Tseng et al., 2023, arXiv 2302.03790) report. A
graph is *unique* if it is the first of its isomorphism class among the generated graphs, and
*novel* if no training graph is of its class. Classes are those of the Weisfeiler-Lehman hash of the
attributed, directed graph; graphs that it cannot tell apart count as equal, which errs on the side
of a repetition. Numbers count by their bin.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from layerdag.dag.dag import DAG, graph_hashes
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import UsageError
from layerdag.evaluation.generators import CodedSamples, coded
from layerdag.evaluation.metrics.base import Interval
from layerdag.evaluation.validity import GRAPH_RULES, StructureTally
from layerdag.runtime.settings import did_you_mean
from layerdag.schema.schema import GraphSchema
from layerdag.validation.rules import Severity

Rule = str | Callable[[DAG], bool]
"""Name of a rule in ``GRAPH_RULES``, or a function that says whether a graph is valid."""

_OF_TRAINING = ("attribute-range", "arity-seen", "source-seen")


@dataclass(frozen=True)
class Proportion:
    """So many of the graphs.

    Attributes:
        count: How many.
        total: Of how many.
    """

    count: int
    total: int

    @property
    def fraction(self) -> float:
        """Count / total."""
        return self.count / self.total

    @property
    def interval(self) -> Interval:
        """Wilson's 95 % interval of the fraction."""
        found = Interval.wilson(self.fraction, self.total)
        return Interval(max(found.low, 0.0), min(found.high, 1.0))

    def to_dict(self) -> dict[str, Any]:
        """Return count, total, fraction and interval."""
        ends = [self.interval.low, self.interval.high]
        return {
            "count": self.count, "total": self.total, "fraction": self.fraction, "interval": ends,
        }  # fmt: skip

    def __str__(self) -> str:
        """Return the fraction with its interval."""
        low, high = self.interval.low, self.interval.high
        return f"{self.fraction:.1%} [{low:.0%}, {high:.0%}]"


@dataclass(frozen=True)
class VUN:
    """Valid, unique and novel graphs among the generated ones.

    Attributes:
        valid: Graphs that keep the rules.
        unique: Graphs that are the first of their isomorphism class.
        novel: Graphs of whose class no training graph is.
        vun: Graphs that are valid, unique and novel.
        novel_real: The same as ``novel`` of real graphs that are not in the training part; None
            without any.
    """

    valid: Proportion
    unique: Proportion
    novel: Proportion
    vun: Proportion
    novel_real: Proportion | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return each proportion as plain data."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: None if each is None else each.to_dict() for name, each in found.items()}

    def __str__(self) -> str:
        """Return one line for each proportion."""
        real = "" if self.novel_real is None else f"; of real test graphs {self.novel_real}"
        return "\n".join(
            f"{name:<7} {getattr(self, name)}{real if name == 'novel' else ''}"
            for name in ("valid", "unique", "novel", "vun")
        )


def vun(
    train: GraphDataset | Sequence[DAG],
    generated: Iterable[Any],
    rules: Iterable[Rule] | None = None,
    *,
    held_out: Sequence[DAG] = (),
    without: Sequence[str] = (),
) -> VUN:
    """Return how many generated graphs are valid, unique, novel, and all three.

    Args:
        train: A data set, whose training graphs count, or graphs of one schema.
        generated: Graphs of any kind, where a data set says what the codes are: samples, networkx,
            ``AttributedGraph``, paths. One with a cycle, or with a word that the data set lacks, is
            neither valid nor unique nor novel.
        rules: What a valid graph keeps: names of ``GRAPH_RULES`` and functions of a DAG. None:
            every rule of severity error. A cycle is never valid.
        held_out: Real graphs beside which novelty is seen; of a data set its test graphs.
        without: Names of node attributes that do not count, such as measured durations; needs a
            data set.

    Raises:
        UsageError: If there is no training or generated graph, or a rule or attribute is unknown.
    """
    if not isinstance(train, GraphDataset):
        return vun_of_codes(train, coded(generated, None), rules, held_out=held_out)
    return vun_of_codes(
        train.graphs["train"],
        coded(generated, train.schema, train.renamed),
        rules,
        held_out=held_out or train.graphs["test"],
        schema=train.schema,
        without=without,
    )


def novelty(
    train: GraphDataset | Sequence[DAG], generated: Iterable[Any], *, without: Sequence[str] = ()
) -> Proportion:
    """Return how many generated graphs no training graph is isomorphic to; see ``vun``."""
    return vun(train, generated, without=without).novel


def vun_of_codes(
    train: Sequence[DAG],
    samples: CodedSamples,
    rules: Iterable[Rule] | None = None,
    *,
    held_out: Sequence[DAG] = (),
    schema: GraphSchema | None = None,
    without: Sequence[str] = (),
) -> VUN:
    """Return the same of samples in codes; raises as ``vun``."""
    if not train or not samples.dags:
        raise UsageError("V.U.N. needs training graphs and generated graphs; one set is empty.")
    columns = _columns(schema, without)
    known = set(_hashes(train, columns))
    is_graph_B = np.array([dag is not None for dag in samples.dags])
    total, usable = len(is_graph_B), samples.usable
    words = np.full(total, "", dtype=object)
    words[is_graph_B] = _hashes(usable, columns)
    first_B = np.zeros(total, dtype=bool)
    first_B[np.unique(words.astype(str), return_index=True)[1]] = True
    valid_B = np.zeros(total, dtype=bool)
    valid_B[is_graph_B] = _valid(usable, rules, train, schema) if usable else []
    unique_B = first_B & is_graph_B
    novel_B = is_graph_B & np.array([word not in known for word in words])
    real = [word not in known for word in _hashes(held_out, columns)]
    return VUN(
        valid=Proportion(int(valid_B.sum()), total),
        unique=Proportion(int(unique_B.sum()), total),
        novel=Proportion(int(novel_B.sum()), total),
        vun=Proportion(int((valid_B & unique_B & novel_B).sum()), total),
        novel_real=Proportion(sum(real), len(real)) if real else None,
    )


def _columns(schema: GraphSchema | None, without: Sequence[str]) -> list[int]:
    """Return the columns of the attributes that do not count."""
    names = [attribute.name for attribute in schema.attributes] if schema else []
    for name in without:
        if name not in names:
            raise UsageError(
                f"There is no node attribute '{name}'.{did_you_mean(name, names)} Known: "
                f"{', '.join(names) or 'none without a data set'}."
            )
    return [names.index(name) for name in without]


def _hashes(dags: Sequence[DAG], columns: Sequence[int]) -> list[str]:
    """Return the hash of each graph without some columns."""
    if not columns:
        return list(graph_hashes(dags))
    return list(graph_hashes(_without(dag, columns) for dag in dags))


def _without(dag: DAG, columns: Sequence[int]) -> DAG:
    x_NA = dag.x_NA.clone()
    x_NA[:, torch.tensor(list(columns))] = 0
    return dag.with_columns(x_NA)


def _valid(
    dags: Sequence[DAG],
    rules: Iterable[Rule] | None,
    train: Sequence[DAG],
    schema: GraphSchema | None,
) -> np.ndarray:
    """Return which graphs keep the rules."""
    errors = [name for name, rule in GRAPH_RULES.items() if rule.severity is Severity.ERROR]
    chosen = list(errors if rules is None else rules)
    names = [rule for rule in chosen if isinstance(rule, str)]
    for name in names:
        if name not in GRAPH_RULES:
            raise UsageError(
                f"There is no rule '{name}' for graphs.{did_you_mean(name, GRAPH_RULES)} Known: "
                f"{', '.join(GRAPH_RULES)}."
            )
    statistics = None
    if schema is not None and (rules is None or set(names) & set(_OF_TRAINING)):
        statistics = GraphStatistics.measure(train, schema.sizes())
    tally = StructureTally(statistics)
    tally.add(dags, [str(number) for number in range(len(dags))])
    kept_B = np.ones(len(dags), dtype=bool)
    for finding in tally.report().findings:
        kept_B[int(finding.where)] &= finding.rule.id not in names
    for rule in chosen:
        if not isinstance(rule, str):
            kept_B &= np.array([bool(rule(dag)) for dag in dags])
    return kept_B
