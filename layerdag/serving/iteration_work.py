"""What one iteration of a serving engine asks of a device: kernels with operations and bytes.

An iteration passes all tokens of a batch through the model once: chunks of prompts (prefill) and
one token of each sequence that already answers (decode). Products take the tokens together;
attention takes them by their lengths.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from layerdag.errors import ConfigError
from layerdag.hardware.dtypes import WEIGHT_FORMATS
from layerdag.plan import SERVED_PRECISIONS, Plan
from layerdag.workloads.transformer.shapes import ModelShape

_STREAM_PASSES = 10
"""Times that norms, additions and rotations read or write the residual stream in a layer."""


@dataclass(frozen=True)
class BatchLoad:
    """What is in the batch of each iteration; float64 arrays of equal shape.

    The last axis is that of iterations; one before it, where there is one, that of data ranks.

    Attributes:
        prompts: Prompts, or chunks of them.
        prefill_tokens: Their tokens.
        prefill_pairs: Pairs of a prompt's token with itself and those before it.
        prefill_read: Cached tokens that prompts read, their own included.
        decodes: Sequences that decode, one token each.
        decode_context: Cached tokens that they read together.
        sampled: Tokens that are drawn: those that decode, and prompts that end.
    """

    prompts: np.ndarray
    prefill_tokens: np.ndarray
    prefill_pairs: np.ndarray
    prefill_read: np.ndarray
    decodes: np.ndarray
    decode_context: np.ndarray
    sampled: np.ndarray

    @property
    def tokens(self) -> np.ndarray:
        """Tokens of the batch."""
        return cast("np.ndarray", self.prefill_tokens + self.decodes)


@dataclass(frozen=True)
class NumberFormats:
    """Number formats of the layers' weights and products, of experts, of cached keys and values.

    ``expert_precision`` is "" for that of the layers; ``kv_precision`` is bf16 or fp8.

    Raises:
        ConfigError: If a precision is not known.
    """

    precision: str = "bf16"
    expert_precision: str = ""
    kv_precision: str = "bf16"

    def __post_init__(self) -> None:
        for name, known in (
            ("precision", SERVED_PRECISIONS),
            ("expert_precision", ("", *SERVED_PRECISIONS)),
            ("kv_precision", ("bf16", "fp8")),
        ):
            if getattr(self, name) not in known:
                raise ConfigError(
                    f"serving: {name} is '{getattr(self, name)}'; known are "
                    f"{', '.join(each for each in known if each)}."
                )

    @property
    def of_experts(self) -> str:
        """The precision of experts."""
        return self.expert_precision or self.precision


@dataclass(frozen=True)
class Kernel:
    """One kind of kernel of an iteration.

    Attributes:
        family: Of ``FAMILIES``; says which share of the device it reaches.
        precision: Class of number of its operations: bf16, f8 or f4.
        count: Kernels of this kind in an iteration.
        operations: Of one kernel, in the shape of the load.
        moved: Bytes of one kernel.
    """

    family: str
    precision: str
    count: int
    operations: np.ndarray
    moved: np.ndarray


FAMILIES = ("product", "experts", "prefill", "decode", "stream", "sum", "exchange")
"""Products of layers; of experts; attention of prompts and of decodes; what passes over the
residual stream; sums of tensor ranks; exchanges of data ranks with experts."""


class IterationWork:
    """The kernels of an iteration on one device.

    Args:
        shape: The model.
        plan: How the devices of an instance share it: ``tensor`` ranks each layer, ``data`` ranks
            attend to sequences of their own, whole experts are spread over ``expert`` of both.

    Raises:
        ConfigError: If they do not fit.
    """

    def __init__(
        self, shape: ModelShape, plan: Plan, formats: NumberFormats = NumberFormats()
    ) -> None:
        if plan.ranks % plan.expert:
            raise ConfigError(
                f"serving: {plan.expert} expert ranks do not divide the {plan.ranks} devices of "
                "an instance (tensor x data)."
            )
        if shape.image:
            raise ConfigError(f"{shape.name} reads images; serving is known of models of text.")
        if shape.heads % plan.tensor:
            raise ConfigError(
                f"{shape.name}: {plan.tensor} tensor ranks do not divide {shape.heads} heads."
            )
        if plan.expert > 1 and not shape.experts:
            raise ConfigError(f"{shape.name} has no experts; leave expert ranks out.")
        if shape.experts and shape.experts % plan.expert:
            raise ConfigError(
                f"{shape.name}: {plan.expert} ranks do not divide {shape.experts} experts."
            )
        self.shape = shape
        self.plan = plan
        self.formats = formats

    @cached_property
    def products(self) -> Mapping[tuple[int, int, str], int]:
        """Products that all tokens of a rank pass: how many, by outputs, inputs and precision."""
        shape, plan = self.shape, self.plan
        found: Counter[tuple[int, int, str]] = Counter()

        def add(outputs: int, inputs: int, count: int, precision: str = "") -> None:
            if count:
                found[outputs, inputs, precision or self.formats.precision] += count

        t, hidden, layers = plan.tensor, shape.hidden, shape.layers
        latent = shape.latent
        if latent:
            heads = shape.heads // t
            add(latent.compressed_width, hidden, layers)
            add(heads * latent.key_width, latent.query_rank or hidden, layers)
            # Keys and values stay compressed: queries and outputs are mapped instead.
            add(heads * latent.expanded_width, latent.kv_rank, layers, "bf16")
        else:
            kv_heads = -(-shape.key_heads // t)
            add(shape.query_width // t + 2 * kv_heads * shape.head_width, hidden, layers)
        add(hidden, shape.output_width // t, layers)
        dense = shape.dense_layers if shape.experts else layers
        block = shape.dense if shape.dense_layers else shape
        add(-(-block.up_width // t), hidden, dense)
        add(hidden, -(-block.feed_forward // t), dense)
        if shape.experts:
            mixtures = layers - shape.dense_layers
            add(shape.experts, hidden, mixtures, "bf16")
            shared = shape.shared_experts
            add(-(-shape.up_width * shared // t), hidden, mixtures if shared else 0)
            add(hidden, -(-shape.feed_forward * shared // t), mixtures if shared else 0)
        return found

    @property
    def head(self) -> tuple[int, int]:
        """Outputs and inputs of the last product, in 16 bits."""
        return -(-self.shape.vocabulary // self.plan.tensor), self.shape.hidden

    @cached_property
    def mixtures(self) -> int:
        """Layers with experts."""
        return self.shape.layers - self.shape.dense_layers if self.shape.experts else 0

    @cached_property
    def weight_bytes(self) -> float:
        """Bytes of the weights of one device."""
        shape, plan = self.shape, self.plan
        kept = sum(
            n * k * count * WEIGHT_FORMATS[precision].item_bytes
            for (n, k, precision), count in self.products.items()
        )
        experts = self.mixtures * shape.experts * shape.expert_parameters / plan.ranks
        tables = (1 if shape.tied else 2) * self.head[0] * self.head[1]
        tables += shape.positions * shape.hidden
        return kept + experts * WEIGHT_FORMATS[self.formats.of_experts].item_bytes + 2.0 * tables

    @cached_property
    def cached_bytes(self) -> float:
        """Bytes of a token in the KV cache of one device."""
        shape, plan = self.shape, self.plan
        width = shape.cached_width
        if not shape.latent:
            width = -(-shape.key_heads // plan.tensor) * (shape.head_width + shape.value_head_width)
        return shape.layers * width * WEIGHT_FORMATS[self.formats.kv_precision].item_bytes

    def local(self, load: BatchLoad) -> list[Kernel]:
        """Return what a rank does for its own sequences, without experts."""
        found = [
            self._product(load.tokens, n, k, precision, count)
            for (n, k, precision), count in self.products.items()
        ]
        found.append(self._product(load.sampled, *self.head, "bf16", 1))
        found += [self.prefill(load), self.decode(load), self.stream(load)]
        if self.plan.tensor > 1:  # two sums a layer
            moved = 2.0 * self.shape.hidden * load.tokens
            found.append(Kernel("sum", "bf16", 2 * self.shape.layers, 0 * moved, moved))
        return found

    def stream(self, load: BatchLoad) -> Kernel:
        """Return norms, additions, activations and rotations of a layer, all in one."""
        shape, tokens = self.shape, load.tokens
        width = _STREAM_PASSES * shape.hidden
        width += (3 * shape.query_width + shape.up_width + shape.feed_forward) // self.plan.tensor
        return Kernel("stream", "bf16", shape.layers, 0 * tokens, 2.0 * width * tokens)

    def prefill(self, load: BatchLoad) -> Kernel:
        """Return the attention of prompts in one layer."""
        shape, t = self.shape, self.plan.tensor
        pairs = self._windowed(load.prefill_pairs, load.prefill_tokens)
        widths = shape.head_width + shape.value_head_width
        operations = 2.0 * pairs * (shape.heads // t) * widths
        row = self.cached_bytes / shape.layers
        moved = row * load.prefill_read + 4.0 * load.prefill_tokens * shape.query_width / t
        return Kernel("prefill", "bf16", shape.layers, operations, moved)

    def decode(self, load: BatchLoad) -> Kernel:
        """Return the attention of sequences that decode, in one layer."""
        shape, t = self.shape, self.plan.tensor
        context = self._windowed(load.decode_context, load.decodes)
        if shape.latent:
            widths = 2 * shape.latent.kv_rank + shape.latent.rope_width
        else:
            widths = shape.head_width + shape.value_head_width
        operations = 2.0 * context * (shape.heads // t) * widths
        row = self.cached_bytes / shape.layers
        moved = row * context + 4.0 * load.decodes * shape.query_width / t
        return Kernel("decode", "bf16", shape.layers, operations, moved)

    def _windowed(self, whole: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the mean over layers where every other one sees a window only."""
        if not self.shape.window:
            return whole
        return (whole + np.minimum(whole, rows * self.shape.window)) / 2

    def of_experts(self, tokens: np.ndarray) -> list[Kernel]:
        """Return what a device does for the tokens of all data ranks together."""
        if not self.mixtures:
            return []
        shape, plan = self.shape, self.plan
        sharers = plan.ranks // plan.expert
        routed = tokens * shape.experts_per_token / plan.expert
        held = shape.experts / plan.expert
        unused = (1 - min(shape.experts_per_token / shape.experts, 1.0)) ** tokens
        weights = held * (1 - unused) * shape.expert_parameters / sharers
        precision = self.formats.of_experts
        operations = 2.0 * routed * shape.expert_parameters / sharers
        inner = 2.0 * routed * (2 * shape.hidden + (shape.up_width + shape.feed_forward) / sharers)
        moved = weights * WEIGHT_FORMATS[precision].item_bytes + inner
        number = WEIGHT_FORMATS[precision].number_class
        found = [Kernel("experts", number, self.mixtures, operations, moved)]
        if plan.data > 1:
            carried = 2.0 * tokens * shape.hidden / plan.data
            found.append(Kernel("exchange", "bf16", 2 * self.mixtures, 0 * carried, carried))
        return found

    def _product(
        self, tokens: np.ndarray, outputs: int, inputs: int, precision: str, count: int
    ) -> Kernel:
        weights = WEIGHT_FORMATS[precision]
        moved = weights.item_bytes * outputs * inputs + 2.0 * tokens * (outputs + inputs)
        operations = 2.0 * tokens * outputs * inputs
        return Kernel("product", weights.number_class, count, operations,
                      np.where(tokens > 0, moved, 0.0))  # fmt: skip
