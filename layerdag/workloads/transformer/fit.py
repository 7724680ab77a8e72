"""Which models a plan can split: refused with the two numbers that do not fit."""

from layerdag.errors import ConfigError
from layerdag.plan import Plan, Step
from layerdag.workloads.transformer.shapes import Image, ModelShape

MAX_LAYER_RUNS = 100_000
"""Most runs of a layer in the traces of all stages: some four million nodes, 2.6 GB."""


def check_fit(shape: ModelShape, plan: Plan, step: Step) -> None:
    """Raise ConfigError, which names the two numbers, if the plan cannot split the model."""
    _check_experts(plan)
    sharers = plan.data * step.micro_batches
    length = plan.context * (plan.tensor if plan.sequence_parallel else 1)
    split = step.sequence if step.phase != "decode" else length
    over_tensor = ("tensor ranks", plan.tensor)
    sharers_of_experts = ("tensor ranks", plan.expert_sharers if shape.experts else plan.tensor)
    for what, total, (over, parts) in (
        ("query heads", shape.heads, over_tensor),
        ("key heads", shape.key_heads, over_tensor),
        ("feed-forward columns", shape.feed_forward, sharers_of_experts),
        ("feed-forward columns of dense layers", shape.dense_feed_forward, over_tensor),
        ("experts", shape.experts, ("expert ranks", plan.expert)),
        ("sequences", step.batch, ("data ranks x micro-batches", sharers)),
        ("tokens of a sequence", split, ("context ranks (x tensor ranks)", length)),
    ):
        if total % parts:
            raise ConfigError(
                f"{shape.name}: a number of {total} {what} cannot be split evenly over {parts} "
                f"{over}; choose numbers that divide."
            )
    _check_stages(shape, plan, step)
    turns = step.micro_batches * (step.tokens if step.phase == "decode" else 1)
    if shape.layers * turns > MAX_LAYER_RUNS:
        each = "micro-batches x tokens" if step.phase == "decode" else "micro-batches"
        raise ConfigError(
            f"{shape.name}: {shape.layers:,} layers x {turns:,} {each} are "
            f"{shape.layers * turns:,} runs of a layer, each of ten to forty nodes; at most "
            f"{MAX_LAYER_RUNS:,} are taken, so choose fewer."
        )
    if plan.expert > 1 and not shape.experts:
        raise ConfigError(
            f"{shape.name}: has no experts to be split over {plan.expert} expert ranks; leave "
            "expert at 1."
        )
    if shape.image:
        _check_image(shape.name, shape.image, step)
    if not step.training:
        _check_inference(plan, step)


def _check_experts(plan: Plan) -> None:
    if plan.expert_tensor not in (0, 1, plan.tensor):
        raise ConfigError(
            f"plan: expert_tensor is {plan.expert_tensor!r}; it is 1 (experts are spread over "
            f"the tensor ranks) or the {plan.tensor} tensor ranks, which 0 stands for."
        )
    spread = plan.tensor > 1 and plan.expert_tensor == 1
    if spread and not plan.sequence_parallel:
        raise ConfigError(
            "plan: expert_tensor 1 gives each tensor rank tokens of its own to send to experts, "
            "which it has with sequence_parallel only; set it, too."
        )
    if plan.experts_over % plan.expert:
        over = "data x context x tensor" if spread else "data x context"
        raise ConfigError(
            f"plan: {plan.expert} expert ranks do not divide {over} = "
            f"{plan.experts_over}, whose ranks share the experts; raise data to a "
            f"multiple of {plan.expert}"
            + ("." if spread or plan.tensor == 1 else ", or set expert_tensor to 1.")
        )


def _check_image(name: str, image: Image, step: Step) -> None:
    if step.phase in ("prefill", "decode"):
        raise ConfigError(
            f"{name}: reads images and has no KV cache for {step.phase}; the phases are training "
            "and inference."
        )
    if step.sequence != image.tokens:
        raise ConfigError(
            f"{name}: an image has {image.tokens} tokens, not {step.sequence}; leave sequence out."
        )
    if step.causal == "half":
        raise ConfigError(f"{name}: attention of images is not causal; leave causal out.")


def _check_stages(shape: ModelShape, plan: Plan, step: Step) -> None:
    stages = plan.pipeline * plan.virtual_stages
    filling = shape.layers + 2 * plan.ends_as_layers
    if stages > filling:
        each = f" of {plan.virtual_stages} virtual stages each" if stages > plan.pipeline else ""
        more = "" if plan.ends_as_layers or stages > filling + 2 else ", or set ends_as_layers"
        raise ConfigError(
            f"{shape.name}: {shape.layers} layers do not fill {plan.pipeline} pipeline stages"
            f"{each}; use fewer{more}."
        )
    _check_ends(shape, plan)
    if plan.virtual_stages > 1 and step.training and step.micro_batches % plan.pipeline:
        raise ConfigError(
            f"step: interleaved 1F1B takes micro-batches in groups of the {plan.pipeline} pipeline "
            f"stages; {step.micro_batches} cannot be grouped so. Give a multiple."
        )


def _check_ends(shape: ModelShape, plan: Plan) -> None:
    given = [count for count in (plan.first_layers, plan.last_layers) if count]
    if not given:
        return
    if plan.ends_as_layers or plan.pipeline <= len(given):
        raise ConfigError(
            f"plan: first_layers {plan.first_layers} and last_layers {plan.last_layers} need a "
            "pipeline with stages between, and ends_as_layers left out."
        )
    rest, stages = shape.layers - sum(given), plan.pipeline - len(given)
    if rest < stages * plan.virtual_stages or any(n % plan.virtual_stages for n in given):
        raise ConfigError(
            f"{shape.name}: first_layers {plan.first_layers} and last_layers {plan.last_layers} "
            f"leave {rest} layers for {stages} stages of {plan.virtual_stages} virtual stages; "
            "choose numbers that the virtual stages divide and that leave a layer for each."
        )


def _check_inference(plan: Plan, step: Step) -> None:
    if plan.zero or plan.recompute != "none":
        raise ConfigError(
            f"step: {step.phase} has no optimizer and no backward pass; leave zero and recompute "
            "out."
        )
    if plan.virtual_stages > 1 or plan.schedule == "zb-h1":
        raise ConfigError(
            f"step: {step.phase} has no backward pass, for whose sake pipelines are interleaved or "
            "split; leave virtual_stages and schedule out."
        )
    if step.phase == "decode" and (plan.context > 1 or plan.sequence_parallel):
        raise ConfigError(
            "step: decode computes one token a sequence, which cannot be split; leave context and "
            "sequence_parallel out."
        )
