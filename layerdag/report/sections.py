"""The sections of a report, as HTML."""

from collections.abc import Iterator, Sequence

import numpy as np

from layerdag.evaluation.metrics.base import Declaration, SimilarityRow
from layerdag.evaluation.similarity import DepthSimilarity, QualityReport
from layerdag.evaluation.validity import GRAPH_RULES, StructureReport
from layerdag.privacy.copies import DistanceToClosestRecord
from layerdag.privacy.membership import FALSE_POSITIVE_RATE, LOW_RATES, AttackResult
from layerdag.report.charts import (
    distribution_chart,
    legend,
    ratio_strip,
    shares_chart,
    timeline_chart,
)
from layerdag.report.content import (
    AS_REAL,
    CLOSE,
    CategoryFractions,
    Distribution,
    Neighbors,
    ReportContent,
)
from layerdag.statistics import MARGIN, Verdict
from layerdag.surrogates.scoring import SCORES
from layerdag.surrogates.training_sets import REAL
from layerdag.surrogates.tstr import (
    RELATIVE,
    ConditionalError,
    ReachedFraction,
    TransferReport,
    TransferRow,
)
from layerdag.viz.drawing import CLASS_COLORS, class_legend, classes_by_size, draw_svg
from layerdag.viz.html import (
    Markup,
    element,
    interval,
    joined,
    number,
    percent,
    percents,
    section,
    table,
    text,
)


def colors_of(content: ReportContent) -> dict[str, int]:
    """Return the color slot of each class of nodes and of each kind of work on a timeline."""
    drawn = (*content.pictures, *(p for n in content.neighbors for p in (n.real, n.sample)))
    slot_of = classes_by_size(drawn)
    for job in content.timelines:
        for kind in (kind for lane in job.lanes for kind in lane.kind_S):
            slot_of.setdefault(kind, min(len(slot_of), CLASS_COLORS - 1))
    return slot_of


_METRICS = {
    "nodes": "Number of nodes",
    "edges": "Number of dependencies",
    "layers": "Number of layers (longest path)",
    "mean_width": "Nodes per layer, mean of a graph",
    "width": "Nodes in a layer",
    "in_degree": "Parents of a node",
    "out_degree": "Children of a node",
    "edge_span": "Layers that a dependency descends",
    "depth_profile": "Where in the depth the nodes lie",
    "edge_types": "Kinds of dependencies",
    "edge_bigrams": "Which operator feeds which",
    "attribute_pairs": "Pairs of values of one node",
    "mmd:sizes": "Sizes and densities together",
    "mmd:in_degree": "Numbers of parents, graph by graph",
    "mmd:out_degree": "Numbers of children, graph by graph",
    "mmd:first_attribute": "Mix of operators, graph by graph",
    "mmd:embedding": "Whole graphs, as an untrained graph network sees them",
    "classifier_bound": "How well a classifier tells samples from real graphs",
    "precision": "Samples that lie among real graphs",
    "recall": "Real graphs that lie among samples",
    "density": "How densely real graphs surround a sample",
    "coverage": "Real graphs with a sample beside them",
}
_ATTRIBUTES = {
    "op": "Operators",
    "type": "Kinds of nodes",
    "collective": "Collectives",
    "group": "Groups of ranks that communicate",
    "stage": "Pipeline stages",
    "peer": "Partners of messages",
    "device": "Devices",
    "dtype": "Data types",
    "flops": "Operations (FLOPs) of a node",
    "bytes": "Bytes that a node moves",
    "comm_bytes": "Bytes that a node communicates",
    "duration": "Duration of a node",
}
_ATTACKS = {
    "nearest_sample": "Nearest sample",
    "nearest_program": "Nearest sample, times left out",
    "density_ratio": "Many samples beside a graph",
    "likelihood": "Likelihood, by the weights",
    "likelihood_ratio": "Likelihood beside shadow models",
    "likelihood_ratio_offline": "Likelihood beside shadow models without the graph",
    "schema_lookup": "Conditions, looked up in the schema",
    "schema_density": "Conditions, by the schema",
    "properties": "Frequencies in the training set",
}
_TRAITS = {"world_size": "Ranks", "size": "Largest numbers", "strategy": "Parallelization"}
"""Of a job's model, where the name says too little."""
_SCORES = {
    "pearson": "Correlation",
    "pearson_log": "Correlation of logarithms",
    "spearman": "Rank correlation",
    "kendall": "Kendall's rank correlation",
    "mae": "Mean error",
    "mape": "Mean relative error",
}
_CONDITIONS = {
    "real": "Real graphs",
    "synthetic": "Samples",
    "real subsample": "A quarter of the real graphs",
    "real, drawn again": "Real graphs, drawn again with replacement",
    "real, shuffled targets": "Real graphs, step times shuffled (guessing)",
    "real + synthetic": "Real graphs and samples",
}
_VALUES = {"COMM_COLL": "collective", "COMP": "computation", "MESSAGE": "message"}


def metric_words(metric: Declaration) -> str:
    """Return what a metric measures, in a few words."""
    return words_of_metric(metric.name, metric.description)


def words_of_metric(name: str, description: str) -> str:
    """Return what a metric of this name and description measures, in a few words."""
    kind, _, attribute = name.partition(":")
    if kind == "attribute":
        return attribute_words(attribute)
    return _METRICS.get(name, description[:1].upper() + description[1:])


def attribute_words(name: str) -> str:
    """Return what an attribute of nodes is, in a few words."""
    return _ATTRIBUTES.get(name, name.replace("_", " ").capitalize())


def value_words(attribute: str, value: str) -> str:
    """Return a value of an attribute as readers say it; names of operators stay."""
    if attribute == "type":
        return _VALUES.get(value, value.lower().replace("_", " "))
    return value.lower().replace("_", "-") if attribute == "collective" else value


def attack_words(name: str) -> str:
    """Return the name of an attack, or of what is read of a job ("model:depth"), in words."""
    if name.startswith("model:"):
        trait = name.removeprefix("model:")
        return _TRAITS.get(trait, trait.replace("_", " ").capitalize())
    return _ATTACKS.get(name, name.replace("_", " ").capitalize())


def score_words(name: str) -> str:
    """Return the name of a score of predictors in words."""
    return _SCORES.get(name, name.replace("_", " ").capitalize())


def condition_words(name: str) -> str:
    """Return what a predictor was trained on, in words."""
    return _CONDITIONS.get(name, name[:1].upper() + name[1:])


def family_words(name: str) -> str:
    """Return the name of a kind of predictor in words."""
    known = {
        "boosting": "Boosted trees",
        "message_passing": "Message passing",
        "stacked": "Stacked ensemble",
    }
    return known.get(name, name.replace("_", " ").capitalize())


def summary_words(what: str) -> str:
    """Return the name of a line of the summary without short names."""
    if what.startswith("W1 of "):
        return f"distance (Wasserstein-1) in {what.removeprefix('W1 of ')}"
    score, found, family = what.removeprefix("surrogate's ").partition(" (")
    if what.startswith("surrogate's ") and found:
        name = family_words(family.rstrip(")")).lower()
        return f"{score_words(score.lower()).lower()} of a predictor ({name})"
    return what.replace("layer-consistent graphs", "graphs whose layers follow each other")


Row = tuple[str, str, Markup | str, str, str, Markup, Markup]
_LOW = ", ".join(f"{100 * rate:g}%" for rate in LOW_RATES)
_CLASSES = {
    Verdict.LEAKS: "poor",
    Verdict.TOO_FEW: "fair",
    Verdict.REVERSED: "fair",
    Verdict.CHANCE: "good",
}


def membership(content: ReportContent) -> Markup | None:
    """Return the table of nearness and of membership attacks."""
    rows = [*_sample_rows(content), *(_attack_row("", attack) for attack in content.weight_attacks)]
    if not rows:
        return None
    head = (
        "attack",
        "samples",
        "share or AUROC",
        "on an honest holdout",
        f"TPR at {FALSE_POSITIVE_RATE:.0%}, {_LOW} FPR",
        "verdict",
        "what is measured",
    )
    caption = "How well training graphs can be distinguished from held-out ones"
    note = (
        f"{_counts(content)}Chance gives 0.5 everywhere; an AUROC of 1 identifies every training "
        "graph. “No better than chance” is said only where the whole 95 % interval lies within "
        f"{MARGIN} "
        "of it, “too few graphs to tell” where it is wider than that and holds 0.5. What an attack "
        "does not find, another one may."
    )
    body = table(caption, head, rows, 1, 2, 3, 4)
    beside = (
        "Honest holdout: the same attack where nothing can leak. Half of the held-out graphs pose "
        "as samples, then the other half (for attacks on weights: as training graphs). A TPR that "
        "so few held-out graphs do not resolve is left out."
    )
    parts = [body, element("p", note), element("p", beside), *_inferences(content)]
    return section("membership", "Membership attacks", *parts)


def _inferences(content: ReportContent) -> Iterator[Markup]:
    rows = [
        (
            attack_words(read.name),
            f"{read.samples:,}",
            percent(read.of_training),
            percent(read.of_held_out),
            percent(read.by_chance),
            f"{number(read.advantage, 2)} {interval(read.interval)}",
            _pill(read.verdict, read.in_words()),
            element("span", read.description, class_="quiet"),
        )
        for read in (() if content.leaks is None else content.leaks.inferences)
    ]
    if not rows:
        return
    head = (
        "figure", "samples", "of training graphs", "of held-out graphs", "by chance", "advantage",
        "verdict", "what is read",
    )  # fmt: skip
    caption = "What samples say of the jobs behind them"
    yield table(caption, head, rows, 1, 2, 3, 4, 5)
    yield element(
        "p",
        "Samples say of any job of their kind what such jobs are like. The advantage is what they "
        "say of training graphs beyond that: the difference, or, for properties of the whole set, "
        "how far the samples follow it where it happens to differ (1 is all the way).",
    )


def _sample_rows(content: ReportContent) -> Iterator[Row]:
    leaks = content.leaks
    if leaks is None:
        return
    yield _nearest_neighbor_row(f"{leaks.samples:,}", leaks.nearness)
    for attack in leaks.attacks:
        yield _attack_row(f"{attack.sampled or leaks.samples:,}", attack)


def _nearest_neighbor_row(samples: str, near: DistanceToClosestRecord) -> Row:
    what = f"share of samples nearer to training, {near.compared} graphs on either side"
    return (
        "Nearer to training",
        samples,
        f"{number(near.dcr_share, 2)} {interval(near.interval)}",
        "",
        "",
        _pill(near.verdict, near.in_words()),
        element("span", what, class_="quiet"),
    )


def _attack_row(samples: str, attack: AttackResult) -> Row:
    honest = attack.holdout
    reported = [rate.true_positive_rate for rate in attack.rates]
    rates = [percent(rate) for rate in (attack.true_positive_rate, *reported)]
    return (
        attack_words(attack.name),
        samples or "the weights",
        f"{number(attack.auc, 2)} {interval(attack.interval)}",
        "" if honest is None else f"{number(honest.auc, 2)} {interval(honest.interval)}",
        ", ".join(rates),
        _pill(attack.verdict, attack.in_words()),
        element("span", attack.description, class_="quiet"),
    )


def _pill(verdict: Verdict, text: str) -> Markup:
    summary, _, lacking = text.partition(" (")
    pill = element("span", summary, class_=f"verdict {_CLASSES[verdict]}")
    if not lacking:
        return pill
    below = element("span", lacking.rstrip(")"), class_="quiet")
    return joined([pill, Markup("<br>"), below])


def _counts(content: ReportContent) -> str:
    if content.leaks is None or not content.leaks.attacks:
        return ""
    attack = content.leaks.attacks[0]
    return f"{attack.members} training and {attack.non_members} held-out graphs. "


def neighbors(content: ReportContent) -> Markup | None:
    """Return each sample beside the real graph of its family that is most like it."""
    pairs = content.neighbors
    if not pairs:
        return None
    slot_of = colors_of(content)
    note = element(
        "p",
        "Each sample stands beside the real graph of the same family that is most like it, of all "
        "that were used for training or held out. A sample should be about as far from it as real "
        "graphs are from each other: much nearer would be a copy, much farther something that no "
        "such job looks like. Distances compare operators, sizes and neighborhoods of all nodes, "
        "not times: 0 is equal, 1.41 is nothing in common.",
    )
    parts = [_pair(pair, slot_of) for pair in pairs]
    return section(
        "neighbors", "Samples and their nearest real graphs", note, class_legend(slot_of),
        joined(parts),
    )  # fmt: skip


def _pair(pair: Neighbors, slot_of: dict[str, int]) -> Markup:
    usual = (
        ""
        if pair.usual is None
        else f"; real graphs of the family are {number(pair.usual)} from theirs, in the median"
    )
    caption = (
        f"Distance {number(pair.distance)} from the nearest of {pair.compared:,} real "
        f"graphs{usual}."
    )
    drawings = element(
        "div", draw_svg(pair.sample, slot_of), draw_svg(pair.real, slot_of), class_="grid-pictures"
    )
    heading = f"Family {pair.family}" if pair.family else "A sample and its neighbor"
    return element("div", element("h3", heading), element("p", caption), drawings, class_="pair")


def timelines(content: ReportContent) -> Markup | None:
    """Return when each rank of a real and of a sampled job computes and communicates."""
    if not content.timelines:
        return None
    slot_of = colors_of(content)
    shown = {kind for job in content.timelines for lane in job.lanes for kind in lane.kind_S}
    key = class_legend({name: slot for name, slot in slot_of.items() if name in shown})
    end_ms = max(job.duration_ms for job in content.timelines)
    figures = [timeline_chart(job, slot_of, end_ms) for job in content.timelines]
    hidden = [
        f"{job.title} has {job.ranks:,} ranks; the first ones are shown."
        for job in content.timelines
        if job.ranks > len({lane.name.rpartition(" ")[0] for lane in job.lanes})
    ]
    note = element(
        "p",
        f"When each rank computes and communicates, simulated on {content.simulated_on}. Both jobs "
        "have the same axis."
        if len(content.timelines) > 1
        else f"When each rank computes and communicates, simulated on {content.simulated_on}.",
    )
    return section(
        "timelines", "Timelines", note, key, element("div", *figures, class_="grid-pictures"),
        *(element("p", text, class_="quiet") for text in hidden),
    )  # fmt: skip


def summary(content: ReportContent) -> Markup | None:
    """Return the table on top."""
    if not content.summary:
        return None
    rows = [
        (
            summary_words(row.what),
            row.synthetic,
            row.real,
            element("span", row.note, class_="quiet"),
        )
        for row in content.summary
    ]
    body = table(
        "Synthetic graphs next to real ones",
        ("figure", "synthetic", "real", "how to read"),
        rows,
        1,
        2,
        shown=len(rows),
    )
    return section("summary", "Summary", element("div", body, class_="summary"))


def pictures(content: ReportContent) -> Markup | None:
    """Return the drawings side by side."""
    if not content.pictures:
        return None
    slot_of = colors_of(content)
    drawings = element(
        "div", *(draw_svg(picture, slot_of) for picture in content.pictures), class_="grid-pictures"
    )
    first = content.pictures[0].title
    heading = "Sampled graphs" if first.startswith("sample-") else "A real and a sampled graph"
    return section("pictures", heading, class_legend(slot_of), drawings)


def validity(content: ReportContent) -> Markup | None:
    """Return the rules with the share of graphs that keep each."""
    if content.structure is None:
        return None
    parts = [_rules(content.structure, content.real_structure), _depth(content.structure)]
    if content.novelty is not None:
        novel = content.novelty
        note = (
            f"Of {novel.graphs} synthetic graphs {percent(novel.unique)} are distinct and "
            f"{percent(novel.novel)} repeat no training graph; {percent(novel.vun)} "
            f"{percents(novel.vun_interval)} are valid, distinct and new. Of the real held-out "
            f"graphs {percent(novel.copied_real)} repeat a training graph, which is the "
            "scale for copies."
        )
        parts.append(element("p", note))
    if content.repairs:
        parts.append(_repairs(content.repairs))
    return section("validity", "Validity and novelty", *parts)


def _rules(structure: StructureReport, real: StructureReport | None) -> Markup:
    rows = []
    for name, fraction in structure.pass_rate.items():
        scale = "" if real is None or name not in real.pass_rate else percent(real.pass_rate[name])
        severity = element("span", GRAPH_RULES[name].severity.value, class_="quiet")
        shares = (percent(fraction),) if real is None else (percent(fraction), scale)
        rows.append((GRAPH_RULES[name].what, *shares, severity))
    caption = f"Share of graphs that keep each rule ({structure.graphs} synthetic graphs)"
    kept = (
        ("synthetic keeping it",) if real is None else ("synthetic keeping it", "real keeping it")
    )
    head = ("the rule is broken when", *kept, "severity")
    return table(caption, head, rows, *range(1, 1 + len(kept)))


def _depth(structure: StructureReport) -> Markup:
    rows = [
        (
            f"{row.first_layer} to {row.last_layer}",
            f"{row.nodes:,}",
            percent(row.consistent),
            percent(row.seen),
        )
        for row in structure.by_depth
    ]
    head = (
        "layers",
        "nodes",
        "with a parent in the layer before",
        "no more parents than in training",
    )
    return table("Synthetic nodes along the depth: drift would show here", head, rows, 1, 2, 3)


def _repairs(repairs: Sequence[tuple[str, int]]) -> Markup:
    rows = [(what, f"{count:,}") for what, count in repairs]
    caption = "Repairs: what was repaired when synthetic graphs were decoded into traces"
    return table(caption, ("repair", "how often"), rows, 1)


def distributions(content: ReportContent) -> Markup | None:
    """Return the charts behind the distances."""
    if not content.distributions and not content.shares:
        return None
    parts = []
    if content.distributions:
        parts += [_legend_of(content.distributions), _charts(content.distributions)]
    if content.shares:
        parts += _categories(content.shares)
    note = element(
        "p",
        "Above, which values occur how often; below, the share of values up to each one: the area "
        "between two of these lines is their Wasserstein-1 distance. Axes are cut at the outer "
        "0.5 %.",
        class_="quiet",
    )
    return section("distributions", "Distributions", note, *parts)


def _categories(every: Sequence[CategoryFractions]) -> list[Markup]:
    """Return bars of each attribute; those of which all nodes have one value are named only."""
    columns = [_in_words(one) for one in every]
    varied = [one for one in columns if _present(one).sum() > 1]
    alike = [
        f"{one.title.lower()} ({one.labels[int(np.argmax(_present(one)))]})"
        for one in columns
        if _present(one).sum() == 1
    ]
    bars = element("div", *(shares_chart(one) for one in varied), class_="grid-charts")
    parts = [element("h3", "Categories")]
    parts.append(legend(tuple(source for source, _ in every[0].shares)))
    if varied:
        parts.append(bars)
    if alike:
        parts.append(element("p", f"The same in every node: {', '.join(alike)}.", class_="quiet"))
    return parts


def _present(one: CategoryFractions) -> np.ndarray:
    return np.max([fraction_K for _, fraction_K in one.shares], axis=0) > 0


def _in_words(one: CategoryFractions) -> CategoryFractions:
    labels = tuple(value_words(one.title, label) for label in one.labels)
    return CategoryFractions(attribute_words(one.title), labels, one.shares)


def _legend_of(distributions: tuple[Distribution, ...]) -> Markup:
    return legend(tuple(sample.source for sample in distributions[0].samples))


def _charts(distributions: tuple[Distribution, ...]) -> Markup:
    return element("div", *(distribution_chart(one) for one in distributions), class_="grid-charts")


def simulation(content: ReportContent) -> Markup | None:
    """Return what the simulator says of real and synthetic workloads."""
    if not content.simulations and content.systems is None:
        return None
    parts = []
    if content.simulations:
        parts += [_legend_of(content.simulations), _charts(content.simulations)]
    if content.systems is not None:
        times = content.systems
        rows = [
            (name, number(real), number(synthetic))
            for name, real, synthetic in zip(
                times.systems, times.real, times.synthetic, strict=True
            )
        ]
        caption = times.quantity[:1].upper() + times.quantity[1:]
        parts.append(table(caption, ("system", "real", "synthetic"), rows, 1, 2))
    return section("simulation", "Simulation", *parts)


def provenance(content: ReportContent) -> Markup | None:
    """Return where the figures come from, and what they do not show."""
    parts = []
    if content.caveats:
        parts.append(element("ul", *(element("li", caveat) for caveat in content.caveats)))
    if content.provenance:
        pairs = [
            piece
            for label, value in content.provenance
            for piece in (element("dt", label), element("dd", value))
        ]
        parts.append(element("dl", *pairs))
    return section("provenance", "Provenance and limits", *parts) if parts else None


WORST = 6
"""Rows of the table of distances that are visible at once, the farthest first."""


def similarity(content: ReportContent) -> Markup | None:
    """Return the table of distances, and the failures beside it."""
    report = content.similarity
    if report is None:
        return None
    explanation = element(
        "p",
        "Each distance is between synthetic and real test graphs; beside it the same distance "
        "between real training and real test graphs, which is the only scale there is. A ratio of "
        "1 is as close as real data comes. Brackets are 95 % bootstrap intervals over graphs. "
        "Fewer graphs lie further away for no other reason; “equal count” is the ratio to as many "
        f"real training graphs as there are synthetic ones. Up to {AS_REAL} of it reads “as "
        f"real”, up to {CLOSE} “close”.",
    )
    computed = [row for row in report.rows if not row.generated.error]
    distances = sorted((row for row in computed if row.is_distance), key=_farthest_first)
    rows = [_similarity_row(row) for row in distances]
    head = ("what is compared", "ratio at equal count", "in words", "ratio", "ratio on a scale",
        "interval of the ratio", "distance of samples", "distance of training graphs",
        "distance is")  # fmt: skip
    body = table(_similarity_caption(report), head, rows, 1, 3, 6, 7, shown=WORST)
    failures = [
        element("li", f"{metric_words(result.metric)}: {result.error}")
        for result in report.failures
    ]
    listed = [element("h3", "Not computed"), element("ul", *failures)] if failures else []
    deep = [_along_depth(content.depth)] if content.depth else []
    scores = _scores([row for row in computed if not row.is_distance])
    return section("similarity", "Similarity", explanation, body, *scores, *deep, *listed)


def _farthest_first(row: SimilarityRow) -> float:
    return float("inf") if row.matched_ratio is None else -row.matched_ratio


def _scores(rows: Sequence[SimilarityRow]) -> list[Markup]:
    cells = [
        (
            metric_words(row.metric),
            number(row.generated.value),
            number(row.reference.value),
            row.metric.goal.value,
            element("span", row.metric.description, class_="quiet"),
        )
        for row in rows
    ]
    head = ("figure", "samples", "training graphs", "better", "what it is")
    caption = "Figures that are no distances"
    return [table(caption, head, cells, 1, 2)] if cells else []


def _along_depth(stretches: tuple[DepthSimilarity, ...]) -> Markup:
    rows: list[list[Markup | str]] = [
        [
            f"{one.begin:.0%} to {one.end:.0%}",
            f"{one.nodes:,}",
            *(number(row.ratio, 2) for row in one.rows),
            element("strong", number(one.mean_ratio, 2)),
        ]
        for one in stretches
    ]
    names = [metric_words(row.metric) for row in stretches[0].rows]
    caption = (
        "Ratios along the depth of a graph: with a sampler that drifts they grow from row to row"
    )
    head = ("layers", "synthetic nodes", *names, "mean")
    return table(caption, head, rows, *range(1, len(head)))


def _similarity_caption(report: QualityReport) -> str:
    return (
        f"The farthest first: {report.generated} synthetic, {report.train} real training, "
        f"{report.test} real test graphs; bootstrap seed {report.seed}, {report.replicates} "
        "resamples"
    )


def _similarity_row(row: SimilarityRow) -> tuple[Markup | str, ...]:
    if row.metric.name.startswith("mmd:"):
        distance = "maximum mean discrepancy, squared"
    else:
        distance = f"Wasserstein-1, {row.metric.unit}" if row.metric.unit else "total variation"
    return (
        metric_words(row.metric),
        element("strong", number(row.matched_ratio, 2)),
        verdict(row.matched_ratio),
        number(row.ratio, 2),
        ratio_strip(row.ratio, row.ratio_interval),
        element("span", interval(row.ratio_interval), class_="quiet"),
        number(row.generated.value),
        number(row.reference.value),
        element("span", distance, class_="quiet"),
    )


def verdict(ratio: float | None) -> Markup:
    """Return the ratio in words."""
    if ratio is None:
        return Markup("")
    if ratio <= AS_REAL:
        return element("span", "as real", class_="verdict good")
    if ratio <= CLOSE:
        return element("span", "close", class_="verdict fair")
    return element("span", "far", class_="verdict poor")


def usefulness(content: ReportContent) -> Markup | None:
    """Return the table of surrogates."""
    report = content.transfer
    if report is None:
        return None
    explanation = element(
        "p",
        f"Predictors learn {content.target} from the graph, and all are tested on the same "
        f"{report.tested_on} real graphs that no training saw; {fits(report.seeds)}. Intervals of "
        f"95 % over {'fits and ' if len(report.seeds) > 1 else ''}test graphs. Compare the rows: "
        "real graphs are the ceiling, shuffled ones the floor.",
    )
    head = ("learned from", "graphs", *(score_words(metric.name) for metric in SCORES))
    tables = []
    for family in dict.fromkeys(row.family for row in report.rows):
        rows = [_transfer_row(row) for row in report.rows if row.family == family]
        caption = f"{family_words(family)}{_ceiling(report, family)}"
        tables.append(table(caption, head, rows, *range(1, len(head))))
    tables += [element("p", _conditional(one)) for one in report.conditional]
    return section("usefulness", "Train on synthetic, test on real", explanation, joined(tables))


def fits(seeds: Sequence[int]) -> str:
    """Return in words how many fits a figure is the mean of, and their seeds."""
    if len(seeds) == 1:
        return f"one fit, seed {seeds[0]}"
    listed = ", ".join(map(str, seeds[:-1]))
    return f"mean of {len(seeds)} fits, seeds {listed} and {seeds[-1]}"


def _conditional(error: ConditionalError) -> str:
    off, off_real = (number(100 * one["mape"].mean, 2) for one in (error.synthetic, error.real))
    rank, rank_real = (number(one["spearman"].mean, 2) for one in (error.synthetic, error.real))
    return (
        f"Do samples have the labels that stand beside them? {family_words(error.family)}, fitted "
        f"to real graphs, differ from them by {off}% in the mean, and from those of real test "
        f"graphs by {off_real}%; rank correlation {rank} and {rank_real}."
    )


def _ceiling(report: TransferReport, family: str) -> str:
    """Return what fraction of the ceiling synthetic graphs reach, where both were run."""
    mine = {one.score: one for one in report.fractions if one.family == family}
    if not mine:
        return ""
    real = report.row(family, REAL).scores
    guessed = [
        name for name in RELATIVE if (found := real[name].interval) is not None and found.low <= 0
    ]
    reached = [_reached(mine[name]) for name in RELATIVE if name not in guessed]
    told = f": synthetic reaches {' and '.join(reached)}" if reached else ""
    lacking = " and ".join(score_words(name).lower() for name in guessed)
    return told + (f"; the {lacking} of real graphs may be 0" if lacking else "")


def _reached(fraction: ReachedFraction) -> str:
    score = score_words(fraction.score).lower()
    found = f"{number(100 * fraction.value, 3)}% of the real {score}"
    if fraction.interval is None:
        return found
    low, high = (number(100 * end, 3) for end in (fraction.interval.low, fraction.interval.high))
    return f"{found} ({low} to {high})"


def _transfer_row(row: TransferRow) -> list[Markup | str]:
    cells: list[Markup | str] = [condition_words(row.condition), str(row.trained_on)]
    for metric in SCORES:
        score = row.scores[metric.name]
        spread = element("span", interval(score.interval), class_="quiet")
        cells.append(joined([text(number(score.mean)), Markup("<br>"), spread]))
    return cells
