#!/usr/bin/env python
"""Does the validator see what it is made for? Planted faults, and the figures that move; JSON.

    python benchmarks/sensitivity.py --out outputs/sensitivity.json  # 24 processor minutes
    python benchmarks/sensitivity.py --out outputs/attacks.json --attacks  # the attacks alone
    python benchmarks/sensitivity.py --out outputs/tails.json --figure joint_tails  # one figure
    python benchmarks/sensitivity.py --out outputs/quick.json --quick  # a minute

Jobs of the corpus are cut at random, by the seed, into a training set, a held-out set and real
graphs that pose as samples, of one size. Faults are planted in the last (``faults``), and
every figure of the validator is computed: similarity, local structure, rules, copies, attacks, and
the transfer of boosted trees. Which must move and which must stay was declared beforehand
(``faults._declared``).

A figure sees a fault if its mean shift over the draws is larger than the half-width of the interval
in which 95 % of real graphs drawn again fall, so that one run shows it, and is told from 0 over the
draws. A run that was stopped goes on with what is missing.
"""

import argparse
import json
import math
import platform
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from faults._declared import ATTACKS, FAULTS, Planted, faults_for
from faults._judged import Judged, Spread, judged
from faults._printed import lines
from faults._samples import Drawn

from layerdag.dag.dag import DAG
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.corpus import load_corpus
from layerdag.datasets.settings import CorpusConfig
from layerdag.evaluation.metrics.base import SimilarityRow, attribute_views
from layerdag.evaluation.metrics.neighborhoods import NEIGHBORHOOD_METRICS
from layerdag.evaluation.similarity import DEFAULT_METRICS, LOCAL_METRICS, compare
from layerdag.evaluation.validity import check_structure
from layerdag.graph.attributed_graph import LABEL
from layerdag.privacy.copies import CopyComparison, CopyTest, novelty
from layerdag.privacy.sample_leaks import sample_leaks
from layerdag.runtime.files import write_text
from layerdag.runtime.rng import numpy_generator
from layerdag.schema.schema import GraphSchema
from layerdag.surrogates.families.registry import FAMILIES
from layerdag.surrogates.scoring import scores
from layerdag.surrogates.targets import labeled

NODE_CLASSIFIER = next(metric for metric in LOCAL_METRICS if metric.name == "node_classifier")
METRICS = (
    *DEFAULT_METRICS,
    *NEIGHBORHOOD_METRICS,
    *(metric for metric in LOCAL_METRICS if metric is not NODE_CLASSIFIER),
)
MIN_GRAPHS = 8
PAIR = "op x flops"
"""Of the pairs of attributes, one that is told apart from the mean over all."""
NO_FAULT = "none"
Key = tuple[str, float, int]


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        size: Graphs of each set.
        max_nodes: Largest graph.
        draws: Draws without a fault, from which intervals come.
        fault_draws: The first of these draws, in which faults are planted, too.
        strengths: Of each fault, the largest ones.
        attacks: Attacks on samples alone, under the faults that they must see.
        figure: The one figure of similarity or local structure that is computed; "" for all.
    """

    size: int
    max_nodes: int
    draws: int
    fault_draws: int
    strengths: int
    attacks: bool = False
    figure: str = ""

    @property
    def faults(self) -> tuple[Planted, ...]:
        """The faults that are planted."""
        return tuple(
            fault for fault in FAULTS if not self.attacks or set(ATTACKS) & set(fault.must)
        )

    def measured(self) -> Iterator[Key]:
        """Yield all that is to be measured: fault, strength, draw."""
        yield from ((NO_FAULT, 0.0, draw) for draw in range(self.draws))
        for draw in range(self.fault_draws):
            for fault in self.faults:
                yield from ((fault.name, strength, draw) for strength in self.of(fault))

    def of(self, fault: Planted) -> tuple[float, ...]:
        """Return the strengths at which a fault is planted."""
        return fault.strengths[-self.strengths :]


FULL = Plan(size=200, max_nodes=300, draws=16, fault_draws=4, strengths=5)
QUICK = Plan(size=20, max_nodes=40, draws=2, fault_draws=1, strengths=1)
ATTACKING = replace(FULL, attacks=True)


def main() -> None:
    """Measure what is missing, write the JSON and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="data", help="folder of the corpus")
    parser.add_argument("--out", type=Path, required=True, help="JSON; gone on with if it exists")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few small graphs: whether it runs, too few to see much",
    )
    parser.add_argument("--attacks", action="store_true", help="the attacks on samples alone")
    parser.add_argument("--figure", default="", help="one of similarity or local structure alone")
    args = parser.parse_args()
    plan = QUICK if args.quick else ATTACKING if args.attacks else FULL
    plan = replace(plan, figure=args.figure)
    data = load_corpus(CorpusConfig(folder=args.data, max_nodes=plan.max_nodes))
    pool = [dag for part in data.graphs.values() for dag in part]
    found = _found(args.out, plan, len(pool))
    bench = _Bench(plan, data.schema, pool)
    for key in plan.measured():
        if _name(key) not in found["figures"]:
            start = time.process_time()
            found["figures"][_name(key)] = bench.figures(key)
            found["processor_seconds"] += time.process_time() - start
            _write(args.out, found)
    report = judge(plan, found["figures"])
    _write(args.out, found | {"report": report})
    print("\n".join(lines(report)))


def _found(out: Path, plan: Plan, pool: int) -> dict[str, Any]:
    """Return what an earlier run of the same plan measured."""
    settings = asdict(plan) | {"pool": pool}
    if out.exists():
        found: dict[str, Any] = json.loads(out.read_text())
        if found.get("settings") != settings:
            raise SystemExit(f"{out} was measured with other settings; take another --out.")
        return found
    start = {"settings": settings, "machine": platform.machine()}
    return start | {"processor_seconds": 0.0, "figures": {}}


def _write(out: Path, found: Mapping[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, json.dumps(found, indent=1) + "\n")


def _name(key: Key) -> str:
    return "/".join(map(str, key))


class _Bench:
    """Draws graphs, plants faults and computes all figures."""

    def __init__(self, plan: Plan, schema: GraphSchema, pool: Sequence[DAG]) -> None:
        self._plan, self._schema, self._pool = plan, schema, pool
        self._faults = faults_for(schema)
        self._kept: dict[int, tuple[Drawn, CopyTest]] = {}

    def figures(self, key: Key) -> dict[str, Any]:
        """Return the figures of one fault, strength and draw; without a fault, real ones beside."""
        name, strength, draw = key
        drawn, copies = self._drawn(draw)
        if self._plan.attacks:
            rng = numpy_generator(draw, "fault", name, str(strength))
            samples = drawn.samples
            if name != NO_FAULT:
                samples = self._faults[name](drawn, strength, rng)
            return {"samples": self._privacy(drawn, copies, samples), "real": {}}
        if self._plan.figure:
            return self._figure(drawn, name, strength, draw)
        if name == NO_FAULT:
            rows = self._rows(drawn, drawn.samples, replicates=200)
            real = {row.metric.name: _reference(row) for row in rows}
            return {"samples": self._all(drawn, copies, drawn.samples, rows), "real": real}
        rng = numpy_generator(draw, "fault", name, str(strength))
        samples = self._faults[name](drawn, strength, rng)
        rows = self._rows(drawn, samples, replicates=2)
        return {"samples": self._all(drawn, copies, samples, rows)}

    def _figure(self, drawn: Drawn, name: str, strength: float, draw: int) -> dict[str, Any]:
        """Return one figure of samples, and without a fault that of real graphs beside it."""
        chosen = [m for m in METRICS if m.name.partition(":")[0] == self._plan.figure]
        if not chosen:
            raise SystemExit(f"There is no figure '{self._plan.figure}' among those of similarity.")
        samples = drawn.samples
        if name != NO_FAULT:
            rng = numpy_generator(draw, "fault", name, str(strength))
            samples = self._faults[name](drawn, strength, rng)
        sets, views = (drawn.train, drawn.held_out, samples), attribute_views(self._schema)
        rows = compare(
            *sets, views, metrics=chosen, replicates=2 if samples is not drawn.samples else 200
        ).rows
        real = {row.metric.name: _reference(row) for row in rows} if name == NO_FAULT else {}
        return {"samples": {row.metric.name: row.generated.value for row in rows}, "real": real}

    def _drawn(self, draw: int) -> tuple[Drawn, CopyTest]:
        """Return the graphs of a draw, and the test for copies of them, kept for the next fault."""
        if draw not in self._kept:
            drawn = Drawn.of(self._pool, self._plan.size, numpy_generator(draw, "sensitivity"))
            test = CopyTest(drawn.train, drawn.held_out, self._schema.measured_columns)
            self._kept = {draw: (drawn, test)}
        return self._kept[draw]

    def _rows(
        self, drawn: Drawn, samples: Sequence[DAG], replicates: int
    ) -> tuple[SimilarityRow, ...]:
        views = attribute_views(self._schema)
        sets = drawn.train, drawn.held_out, samples
        report = compare(*sets, views, metrics=METRICS, replicates=replicates)
        # What the classifier says of samples does not depend on the training graphs, and what it
        # says of these was measured without a fault: a few of them save half of its time.
        some = drawn.train if replicates > 2 else drawn.train[:MIN_GRAPHS]
        sets = some, drawn.held_out, samples
        nodes = compare(*sets, views, metrics=[NODE_CLASSIFIER], replicates=replicates)
        return (*report.rows, *nodes.rows)

    def _all(
        self,
        drawn: Drawn,
        copies: CopyTest,
        samples: Sequence[DAG],
        rows: Sequence[SimilarityRow],
    ) -> dict[str, float | None]:
        """Return the figures of samples by name; None for one that does not exist."""
        found = {row.metric.name: row.generated.value for row in rows}
        (pairs,) = (row.generated for row in rows if row.metric.name == "attribute_pairs")
        found[f"attribute_pairs:{PAIR}"] = pairs.breakdown[PAIR]
        return (
            found
            | self._rules(drawn, samples)
            | self._privacy(drawn, copies, samples)
            | self._transfer(drawn, samples)
        )

    def _rules(self, drawn: Drawn, samples: Sequence[DAG]) -> dict[str, float | None]:
        """Return the fractions of graphs that break a rule, and that a rule warns of."""
        known = GraphStatistics.measure(drawn.train, self._schema.sizes())
        report = check_structure(samples, known)
        kept = min(report.pass_rate.values())
        return {"invalid": 1 - report.validity, "warned": 1 - kept}

    def _privacy(
        self, drawn: Drawn, copies: CopyTest, samples: Sequence[DAG]
    ) -> dict[str, float | None]:
        """Return fractions of copies, and how well attacks tell training from held-out graphs."""
        measured = self._schema.measured_columns
        leaks = sample_leaks(
            drawn.train,
            drawn.held_out,
            samples,
            measured=measured,
            numeric=self._schema.size_columns,
        )
        assert leaks is not None  # there are graphs of each set
        alike = Counter(copies.resemblances(samples))
        return {
            "copied": novelty(drawn.train, drawn.held_out, samples).copied,
            "program_copied": alike[CopyComparison.COPY] / len(samples),
            "program_near": alike[CopyComparison.NEAR] / len(samples),
            "dcr_share": leaks.nearness.dcr_share,
            **{attack.name: attack.auc for attack in leaks.attacks},
            **{read.name: read.advantage for read in leaks.inferences},
        }

    def _transfer(self, drawn: Drawn, samples: Sequence[DAG]) -> dict[str, float | None]:
        """Return how well boosted trees that learned from the samples predict real step times."""
        made, real = (
            labeled(dags, self._schema, LABEL, ["duration"]) for dags in (samples, drawn.held_out)
        )
        model = FAMILIES["boosting"](made.dags, made.target_B, self._schema.sizes(), 0)
        found = scores(real.target_B, model.predict(real.dags))
        return {f"tstr:{name}": float(found[name][0]) for name in ("spearman", "mape")}


def _reference(row: SimilarityRow) -> dict[str, float | None]:
    """Return the figure of real graphs, and whether the interval of the ratio holds 1."""
    interval = row.ratio_interval
    inside = None if interval is None else float(interval.low <= 1 <= interval.high)
    return {"value": row.reference.value, "ratio_holds_1": inside}


def judge(plan: Plan, figures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the spread of real graphs, and each figure under each fault."""
    draws = [figures[_name((NO_FAULT, 0.0, draw))] for draw in range(plan.draws)]
    names = [name for name, value in draws[0]["samples"].items() if value is not None]
    spread = {name: Spread.of([d["samples"][name] for d in draws]) for name in names}
    verdicts = []
    for fault in plan.faults:
        for name in names:
            values = {
                strength: [
                    _number(figures[_name((fault.name, strength, draw))]["samples"][name])
                    for draw in range(plan.fault_draws)
                ]
                for strength in plan.of(fault)
            }
            without = [d["samples"][name] for d in draws[: plan.fault_draws]]
            asked = (fault.name, fault.duty(name))
            verdicts.append(judged(asked, name, values, without, spread[name].half))
    return {
        "holdout": [_scored(name, spread[name], draws) for name in names],
        "faults": [_plain(verdict) for verdict in verdicts],
    }


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _scored(name: str, spread: Spread, draws: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a figure of real graphs that pose as samples beside the same of training graphs."""
    pairs = [(d["samples"][name], d["real"].get(name, {"value": None})) for d in draws]
    found: dict[str, Any] = {"figure": name, **asdict(spread)}
    if pairs[0][1]["value"] is None:
        return found
    difference = Spread.of([one - real["value"] for one, real in pairs])
    inside = [real["ratio_holds_1"] for _, real in pairs if real["ratio_holds_1"] is not None]
    return found | {
        "real": float(np.mean([real["value"] for _, real in pairs])),
        "difference": difference.mean,
        "difference_error": difference.error,
        "as_real": abs(difference.mean) <= difference.error + 1e-12,
        "ratio_holds_1": float(np.mean(inside)) if inside else None,
    }


def _plain(verdict: Judged) -> dict[str, Any]:
    found = {name: getattr(verdict, name) for name in ("threshold", "monotone", "outcome")}
    return asdict(verdict) | found | {"duty": verdict.duty.value}


if __name__ == "__main__":
    main()
