"""What ``train privacy.epsilon=...`` tells its reader, and the card that goes with the weights."""

import shlex

from layerdag.training.private import PrivateResult, PrivateRun

CARD = "privacy.md"
"""Card in the folder of a run: it names nothing of the private graphs."""


def before_tuning(run: PrivateRun) -> str:
    """Return what is about to be tuned: for the owner of the graphs alone."""
    unit, count = run.privacy.unit, run.units.count
    lines = [
        f"private: {run.units.graphs.num_graphs:,} graphs of {count:,} {unit}s, in the words, bins "
        f"and conditions of {run.start.origin.name}; validation and test graphs are not used"
    ]
    if run.left_out:
        lines.append(f"left out: {len(run.left_out)} graphs, the first: {run.left_out[0]}")
    lines.append("figures below are for the owner of the graphs alone: they have no noise")
    return "\n".join(lines) + "\n"


def after_tuning(result: PrivateResult) -> str:
    """Return the promise, the measured lower bound, and the command that samples."""
    guarantee, best = result.guarantee, shlex.quote(str(result.run.best))
    lines = [f"{guarantee.trained_parameters:,} parameters tuned: {guarantee}"]
    if guarantee.lower_bound is not None:
        lines.append(
            f"an attacker with the weights proves that epsilon is {guarantee.lower_bound:.2f} or "
            "more (95 % confidence); canaries took part, so share other weights"
        )
    lines.append(f"Sample from it: layerdag sample checkpoint={best}")
    return "\n".join(lines) + "\n"


def privacy_card(result: PrivateResult) -> str:
    """Return the card, in Markdown."""
    guarantee = result.guarantee
    rows = [
        ("unit", guarantee.unit),
        ("epsilon", "none" if guarantee.epsilon is None else f"{guarantee.epsilon:g}"),
        ("delta", f"{guarantee.delta:g}"),
        ("neighbors", guarantee.neighbors),
        ("accountant", guarantee.accountant),
        ("noise over clipping norm", f"{guarantee.noise_multiplier:.4g}"),
        ("sampling", f"Poisson, rate {guarantee.sampling_rate:g}"),
        ("steps", str(guarantee.steps)),
        ("clipping norm", f"{guarantee.clip:g}"),
        ("tuned parameters", f"{guarantee.trained_parameters:,}"),
        ("noise", guarantee.noise),
        ("measured lower bound of epsilon",
         "not measured" if guarantee.lower_bound is None else f"{guarantee.lower_bound:.2f}"),
    ]  # fmt: skip
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return (
        f"# Differential privacy of these weights\n\n{guarantee}.\n\n"
        f"| | |\n|---|---|\n{table}\n\n"
        "The promise is about the runs that were tuned on, not about those of the checkpoint that "
        "tuning started from, and about one run of tuning: choosing among several by private "
        "graphs is not in it. Arithmetic is in floating point, which the proof ignores.\n"
    )
