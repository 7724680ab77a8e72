"""The words of a report for metrics, attributes, attacks, scores and conditions."""

from collections.abc import Sequence
from dataclasses import replace

from layerdag.evaluation.metrics.base import Declaration
from layerdag.report.content import CategoryFractions
from layerdag.surrogates.training_sets import REAL
from layerdag.surrogates.tstr import RELATIVE, TransferReport
from layerdag.viz.numbers import number

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
    kind, _, attribute = metric.name.partition(":")
    if kind == "attribute":
        return attribute_words(attribute)
    return _METRICS.get(metric.name, metric.description[:1].upper() + metric.description[1:])


def attribute_words(name: str) -> str:
    """Return what an attribute of nodes is, in a few words."""
    return _ATTRIBUTES.get(name, name.replace("_", " ").capitalize())


def value_words(attribute: str, value: str) -> str:
    """Return a value of an attribute as readers say it; names of operators stay."""
    if attribute == "type":
        return _VALUES.get(value, value.lower().replace("_", " "))
    return value.lower().replace("_", "-") if attribute == "collective" else value


def categories_in_words(shares: CategoryFractions) -> CategoryFractions:
    """Return the shares of an attribute's values, with both named as readers say them."""
    labels = tuple(value_words(shares.title, label) for label in shares.labels)
    return replace(shares, title=attribute_words(shares.title), labels=labels)


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


def fits(seeds: Sequence[int]) -> str:
    """Return in words how many fits a figure is the mean of, and their seeds."""
    if len(seeds) == 1:
        return f"one fit, seed {seeds[0]}"
    listed = ", ".join(map(str, seeds[:-1]))
    return f"mean of {len(seeds)} fits, seeds {listed} and {seeds[-1]}"


def ceiling_words(report: TransferReport, family: str) -> str:
    """Return what fraction of the ceiling synthetic graphs reach, "" unless both were run."""
    mine = {one.score: one for one in report.fractions if one.family == family}
    if not mine:
        return ""
    real = report.row(family, REAL).scores
    guessed = [
        name for name in RELATIVE if (found := real[name].interval) is not None and found.low <= 0
    ]
    reached = []
    for name in RELATIVE:
        if name not in guessed:
            fraction = mine[name]
            text = f"{number(100 * fraction.value, 3)}% of the real {score_words(name).lower()}"
            if fraction.interval is not None:
                ends = (fraction.interval.low, fraction.interval.high)
                text += " ({} to {})".format(*(number(100 * end, 3) for end in ends))
            reached.append(text)
    lacking = " and ".join(score_words(name).lower() for name in guessed)
    return (f": synthetic reaches {' and '.join(reached)}" if reached else "") + (
        f"; the {lacking} of real graphs may be 0" if lacking else ""
    )
