"""The runs of the corpus: which model, cut how, trained how. Drawn once from a fixed seed.

Structural knobs (depth, kinds of layers, optimizer, ...) are drawn until their combination is new,
sizes (widths, batch) freely: so runs differ in structure, and equal structures in size are rare.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

Value = int | float | str
Choices = Mapping[str, Sequence[Value]]


@dataclass(frozen=True)
class RunPlan:
    """One run to be collected.

    Attributes:
        run: Unique name.
        family: Model family.
        strategy: How the model is spread over ranks.
        world_size: Number of ranks.
        phase: "training" or "inference".
        hyper: Hyper-parameters.
        seed: Seed of weights and data.
    """

    run: str
    family: str
    strategy: str
    world_size: int
    phase: str
    hyper: Mapping[str, Value]
    seed: int


_ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "leaky_relu", "elu", "sigmoid", "softplus")
_OPTIMIZERS = ("sgd", "momentum", "adam", "adamw_foreach", "adamw_fused", "adagrad", "rmsprop")

_TRANSFORMER: Choices = {
    "depth": (1, 2, 3),
    "activation": ("relu", "gelu", "silu"),
    "norm": ("layer", "rms"),
    "placement": ("pre", "post", "parallel"),
    "attention": ("fused", "stepwise"),
    "gated": (0, 1),
    "joint_qkv": (0, 1),
}
STRUCTURE: Mapping[str, Choices] = {
    "mlp": {
        "depth": (1, 2, 3, 4, 5, 6, 8),
        "activation": _ACTIVATIONS,
        "norm": ("none", "layer", "batch", "rms"),
        "residual": (0, 1),
        "loss": ("cross_entropy", "mse"),
    },
    "cnn": {
        "depth": (1, 2, 3, 4, 5, 6),
        "activation": ("relu", "gelu", "silu", "leaky_relu"),
        "norm": ("none", "batch", "group"),
        "residual": (0, 1),
        "conv": ("full", "separable"),
        "pool": ("max", "avg"),
        "stage": (1, 2),
        "loss": ("cross_entropy", "mse"),
    },
    "gpt": {**_TRANSFORMER, "rotary": (0, 1)},
    "bert": {**_TRANSFORMER, "task": ("sequence", "tokens")},
    "moe": {
        "depth": (1, 2),
        "activation": ("relu", "gelu", "silu"),
        "norm": ("layer", "rms"),
        "gated": (0, 1),
        "experts": (4, 8),
        "top": (1, 2),
        "mixer": ("attention", "none", "none"),
        "attention": ("fused",),
        "placement": ("pre", "post"),
    },
    "dlrm": {
        "tables": (4, 8, 12),
        "bottom": (0, 1, 2, 3),
        "top": (0, 1, 2, 3),
        "activation": ("relu", "gelu", "silu", "tanh"),
        "interaction": ("dot", "cat"),
    },
    "gnn": {
        "depth": (1, 2, 3, 4),
        "layer": ("gcn", "sage", "gin", "gat"),
        "activation": ("relu", "gelu", "silu", "elu"),
        "norm": ("none", "layer", "batch"),
        "residual": (0, 1),
        "readout": ("node", "mean", "max"),
    },
}
_TRAINING: Choices = {"optimizer": _OPTIMIZERS, "clip": (0, 0, 1), "accumulate": (1, 1, 1, 2)}
_SIZES: Mapping[str, Choices] = {
    "mlp": {"width": (64, 128, 256, 512), "batch": (16, 32, 64, 128)},
    "cnn": {"width": (8, 16, 32), "batch": (4, 8, 16)},
    "gpt": {"width": (64, 128, 256), "heads": (4, 8), "time": (16, 32, 64), "batch": (4, 8),
            "vocabulary": (256, 512), "expansion": (2, 4)},
    "bert": {"width": (64, 128, 256), "heads": (4, 8), "time": (16, 32, 64), "batch": (4, 8),
             "vocabulary": (256, 512), "expansion": (2, 4)},
    "moe": {"width": (64, 128), "heads": (4, 8), "time": (16, 32), "batch": (4, 8),
            "vocabulary": (256,), "expansion": (2, 4)},
    "dlrm": {"width": (16, 32, 64), "batch": (32, 64, 128)},
    "gnn": {"width": (32, 64, 128), "nodes": (64, 256), "degree": (4, 8)},
}  # fmt: skip
_STRATEGY: Mapping[str, Choices] = {
    "ddp": {"bucket_mb": (0.01, 0.1, 25), "bucket_view": (0, 1)},
    "pp": {"schedule": ("gpipe", "1f1b"), "microbatches": (2, 4)},
    "ep": {"sync": ("each", "flat")},
    "a2a": {"sync": ("each", "flat")},
}

_FAMILIES = tuple(STRUCTURE)
_LAYERED = ("mlp", "cnn", "gpt", "bert")
_SHARDED = ("mlp", "gpt", "bert")
QUOTAS: tuple[tuple[tuple[str, ...], str, int, str, int], ...] = (
    (_FAMILIES, "single", 1, "training", 70),
    (_FAMILIES, "single", 1, "inference", 14),
    (_FAMILIES, "ddp", 2, "training", 11),
    (_FAMILIES, "ddp", 4, "training", 7),
    (_LAYERED, "fsdp2", 2, "training", 11),
    (_LAYERED, "fsdp2", 4, "training", 7),
    (_SHARDED, "tp", 2, "training", 12),
    (_SHARDED, "tp", 4, "training", 8),
    (_SHARDED, "tp", 2, "inference", 3),
    (_LAYERED, "pp", 2, "training", 11),
    (_LAYERED, "pp", 4, "training", 8),
    (("moe",), "ep", 2, "training", 22),
    (("moe",), "ep", 4, "training", 14),
    (("moe",), "ep", 2, "inference", 5),
    (("dlrm",), "a2a", 2, "training", 22),
    (("dlrm",), "a2a", 4, "training", 14),
    (("dlrm",), "a2a", 2, "inference", 5),
)
"""(families, strategy, world size, phase, number of runs of each family)."""


def corpus_plan(seed: int = 0) -> tuple[RunPlan, ...]:
    """Return all runs of the corpus; the same for the same seed."""
    return _planned(np.random.default_rng(seed), set(), QUOTAS, first=0)


def further_plans(times: int = 4, seed: int = 1) -> tuple[RunPlan, ...]:
    """Return more runs to train on: no structure of the corpus occurs again; in random order.

    Args:
        times: So many times the runs of the corpus.
        seed: Of what is drawn.
    """
    seen: set[tuple[object, ...]] = set()
    corpus = _planned(np.random.default_rng(0), seen, QUOTAS, first=0)
    rng = np.random.default_rng(seed)
    quotas = [(*quota[:4], times * quota[4]) for quota in QUOTAS]
    plans = _planned(rng, seen, quotas, first=len(corpus))
    return tuple(plans[i] for i in rng.permutation(len(plans)))


def _planned(
    rng: np.random.Generator,
    seen: set[tuple[object, ...]],
    quotas: Iterable[tuple[tuple[str, ...], str, int, str, int]],
    first: int,
) -> tuple[RunPlan, ...]:
    """Return runs that fill quotas, numbered from ``first`` on, of structures not in ``seen``."""
    plans: list[RunPlan] = []
    for families, strategy, world_size, phase, count in quotas:
        for family in (name for name in families for _ in range(count)):
            hyper = _draw(rng, (family, strategy, phase), seen, world_size)
            name = f"{first + len(plans):04d}_{family}_{strategy}_ws{world_size}"
            plans.append(
                RunPlan(name, family, strategy, world_size, phase, hyper, int(rng.integers(2**31)))
            )
    return tuple(plans)


def _draw(
    rng: np.random.Generator,
    kind: tuple[str, str, str],
    seen: set[tuple[object, ...]],
    world_size: int,
) -> dict[str, Value]:
    """Draw hyper-parameters whose structural part has not been drawn before."""
    family, strategy, phase = kind
    training = _TRAINING if phase == "training" else {}
    knobs = {**STRUCTURE[family], **training, **_STRATEGY.get(strategy, {})}
    for _ in range(10_000):
        drawn = _constrain({name: _pick(rng, values) for name, values in knobs.items()}, kind)
        if strategy == "pp":
            drawn["microbatches"] = max(int(drawn["microbatches"]), world_size)
        key = (*kind, *sorted(drawn.items(), key=str))
        if key not in seen:
            seen.add(key)
            sizes = {name: _pick(rng, values) for name, values in _SIZES[family].items()}
            if strategy in ("tp", "ep", "a2a"):
                drawn["parallel"] = world_size
            return {**drawn, **sizes}
    raise RuntimeError(f"no new structure is left for {kind}; lower its quota")


def _pick(rng: np.random.Generator, values: Sequence[Value]) -> Value:
    """Draw one of the values."""
    return values[int(rng.integers(len(values)))]


def _constrain(drawn: dict[str, Value], kind: tuple[str, str, str]) -> dict[str, Value]:
    """Mend combinations that do not work or would be too large."""
    family, strategy, _ = kind
    deep = family in ("gpt", "bert", "moe", "dlrm") or int(drawn["depth"]) > 3
    if deep and drawn.get("optimizer") in ("adam", "adagrad", "rmsprop"):
        drawn["optimizer"] = "adamw_foreach"
    if strategy == "pp":
        drawn.update(clip=0, accumulate=1)
        if family in ("gpt", "bert"):
            drawn["depth"] = max(2, int(drawn["depth"]))
        elif family in ("mlp", "cnn"):
            drawn["depth"] = max(3, int(drawn["depth"]))
    if strategy in ("fsdp2", "tp", "ep", "a2a"):
        drawn["accumulate"] = 1
    if strategy == "fsdp2":
        drawn["clip"] = 0
        if drawn.get("optimizer") == "adamw_fused":
            drawn["optimizer"] = "adamw_foreach"
    if strategy == "tp" and family == "mlp":
        drawn.update(
            norm="layer" if drawn["norm"] in ("none", "batch") else drawn["norm"], residual=1
        )
    return drawn


def twin_plans() -> tuple[RunPlan, ...]:
    """Return runs that differ from one of the corpus in one number only: pairs, to test scaling.

    Knobs of structure are never drawn twice, so that no two runs of the corpus are such a pair.
    Names say what differs: "0700_gpt_ddp_ws4.ws2" is run 700 on two ranks,
    "0012_gpt_single_ws1.deep4" run 12 with four layers.
    """
    plans = corpus_plan()
    fewer = [
        _on_two_ranks(plan) for plan in plans if plan.world_size == 4 and plan.strategy != "pp"
    ]
    return (*fewer, *_deeper(plans))


def _on_two_ranks(plan: RunPlan) -> RunPlan:
    """Return a run of four ranks on two: each rank has its batch, as before."""
    hyper = dict(plan.hyper)
    if "parallel" in hyper:
        hyper["parallel"] = 2
    return replace(plan, run=f"{plan.run}.ws2", world_size=2, hyper=hyper)


def _deeper(plans: Sequence[RunPlan]) -> Iterator[RunPlan]:
    """Yield runs of more layers: eight of each family and strategy, on at most two ranks."""
    taken: dict[tuple[str, str], int] = {}
    for plan in plans:
        depth, key = int(plan.hyper.get("depth", 0)), (plan.family, plan.strategy)
        if depth < 2 or plan.world_size > 2 or plan.strategy == "pp" or taken.get(key, 0) == 8:
            continue
        taken[key] = taken.get(key, 0) + 1
        deep = depth + 2 + depth % 2
        hyper = {**plan.hyper, "depth": deep}
        yield replace(plan, run=f"{plan.run}.deep{deep}", hyper=hyper)
