"""The shape of a transformer: all that sizes and operations follow from."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Literal

from layerdag.errors import ConfigError
from layerdag.workloads.symbolic.shapes._image import Image
from layerdag.workloads.symbolic.shapes._latent import Latent

Biases = Literal["none", "qkv", "all"]
Norm = Literal["layer", "rms", "adaptive"]

TIME_FREQUENCIES = 256
"""Inputs of the network that embeds the time step of a diffusion transformer (DiT)."""


@dataclass(frozen=True)
class ModelShape:
    """A transformer: decoder-only for text, or an encoder of images.

    Attributes:
        name: For messages and summaries.
        layers: Transformer layers.
        hidden: Width of the residual stream.
        heads: Query heads.
        feed_forward: Inner width of the feed-forward block, of one expert in a mixture.
        vocabulary: Tokens, as the embedding table has rows; with ``image`` the outputs: classes, or
            numbers of a patch.
        kv_heads: Key and value heads; 0 for as many as query heads.
        head_size: Width of one head; 0 for ``hidden / heads``.
        positions: Rows of a learned position embedding; 0 for rotary or no positions.
        gated: Whether the feed-forward block has a gate (three matrices instead of two).
        norm: "layer" (weight and bias), "rms" (weight) or "adaptive" (no parameters: scale, shift
            and gate are computed from time step and label, adaLN-Zero).
        biases: Which linear layers have a bias.
        qk_norm: Whether queries and keys are normalized per head.
        tied: Whether the output layer is the transposed embedding table.
        dropout: Whether training applies dropout, whose masks are kept for the backward pass.
        experts: Experts of each mixture; 0 for a dense model.
        experts_per_token: Experts that each token is sent to.
        image: What is read instead of words; attention then is not causal.
        latent: Widths of multi-head latent attention, in place of ``kv_heads`` and ``head_size``.
        shared_experts: Experts of each mixture that every token passes, beside the routed ones.
        dense_layers: Layers before the first mixture, which have a feed-forward block of their own.
        dense_feed_forward: Inner width of that block; 0 without such layers.
        router_bias: Whether the router has a bias, one number for each expert.

    Raises:
        ConfigError: If a number is not possible; names it.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocabulary: int
    kv_heads: int = 0
    head_size: int = 0
    positions: int = 0
    gated: bool = False
    norm: Norm = "layer"
    biases: Biases = "all"
    qk_norm: bool = False
    tied: bool = False
    dropout: bool = False
    experts: int = 0
    experts_per_token: int = 0
    image: Image | None = None
    latent: Latent | None = None
    shared_experts: int = 0
    dense_layers: int = 0
    dense_feed_forward: int = 0
    router_bias: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is not int:
                continue
            least = 1 if field.name in _AT_LEAST_ONE else 0
            if type(value) is not int or value < least:
                raise ConfigError(
                    f"model {self.name}: {field.name} is {value!r}; it must be a whole number of "
                    f"at least {least}."
                )
        if (self.norm == "adaptive") != bool(self.image and self.image.labels):
            raise ConfigError(
                f"model {self.name}: adaptive norms need an image with labels to adapt to, and the "
                "other way round."
            )
        self._check_mixture()
        if self.latent:
            self._check_latent()
        elif not self.head_size and self.hidden % self.heads:
            raise ConfigError(
                f"model {self.name}: {self.heads} heads do not divide the width {self.hidden}; "
                "give head_size."
            )
        if self.heads % self.key_heads:
            raise ConfigError(
                f"model {self.name}: {self.heads} query heads are no multiple of {self.key_heads} "
                "key heads."
            )

    def _check_mixture(self) -> None:
        """Refuse numbers of experts and of dense layers that make no mixture."""
        if bool(self.experts) != bool(self.experts_per_token) or (
            self.experts_per_token > self.experts
        ):
            raise ConfigError(
                f"model {self.name}: {self.experts_per_token} of {self.experts} experts a token "
                "make no mixture; give both numbers, or neither."
            )
        if not self.experts and (self.shared_experts or self.dense_layers or self.router_bias):
            raise ConfigError(
                f"model {self.name}: shared_experts, dense_layers and router_bias belong to a "
                "mixture; give experts, or leave them out."
            )
        if bool(self.dense_layers) != bool(self.dense_feed_forward):
            raise ConfigError(
                f"model {self.name}: {self.dense_layers} dense layers of inner width "
                f"{self.dense_feed_forward}; give both numbers, or neither."
            )
        if self.dense_layers > self.layers:
            raise ConfigError(
                f"model {self.name}: {self.dense_layers} dense layers are more than all of its "
                f"{self.layers} layers."
            )

    def _check_latent(self) -> None:
        """Refuse what only attention with keys and values of its own has."""
        if self.kv_heads not in (0, self.heads) or self.head_size or self.qk_norm or self.image:
            raise ConfigError(
                f"model {self.name}: latent attention has widths of its own and reads text; leave "
                "kv_heads, head_size, qk_norm and image out."
            )
        if self.biases != "none":
            raise ConfigError(
                f"model {self.name}: latent attention is known without biases; set biases to "
                "'none'."
            )

    @property
    def key_heads(self) -> int:
        """Key heads, as many as value heads."""
        return self.kv_heads or self.heads

    @property
    def head_width(self) -> int:
        """Width of a head's query and key."""
        if self.latent:
            return self.latent.key_width
        return self.head_size or self.hidden // self.heads

    @property
    def value_head_width(self) -> int:
        """Width of a head's value."""
        return self.latent.value_width if self.latent else self.head_width

    @property
    def query_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_width

    @property
    def output_width(self) -> int:
        """Width of what attention makes of all heads: the input of its last linear layer."""
        return self.heads * self.value_head_width

    @property
    def kv_width(self) -> int:
        """Width of all key heads together."""
        return self.key_heads * self.head_width

    @property
    def value_width(self) -> int:
        """Width of all value heads together."""
        return self.key_heads * self.value_head_width

    @property
    def cached_width(self) -> int:
        """Numbers of a token in the KV cache of a layer, of all tensor ranks."""
        return self.latent.cached_width if self.latent else self.kv_width + self.value_width

    @property
    def up_width(self) -> int:
        """Outputs of the first linear layer of a feed-forward block: twice as many with a gate."""
        return self.feed_forward * (2 if self.gated else 1)

    @property
    def norm_parameters(self) -> int:
        """Parameters of one normalization of the residual stream."""
        return self.hidden * {"layer": 2, "rms": 1, "adaptive": 0}[self.norm]

    @property
    def attention_parameters(self) -> int:
        """Parameters of the attention block of one layer, without its normalization."""
        if self.latent:
            count = self.latent.shared_parameters(self.hidden) + self.output_width * self.hidden
            return count + self.latent.expanding_parameters(self.hidden, self.heads)
        qkv = self.query_width + 2 * self.kv_width
        count = self.hidden * qkv + self.query_width * self.hidden
        count += qkv if self.biases != "none" else 0
        count += self.hidden if self.biases == "all" else 0
        return count + (2 * self.head_width if self.qk_norm else 0)

    @property
    def expert_parameters(self) -> int:
        """Parameters of one feed-forward block (of one expert in a mixture)."""
        count = self.hidden * (self.up_width + self.feed_forward)
        return count + (self.up_width + self.hidden if self.biases == "all" else 0)

    @property
    def router_parameters(self) -> int:
        """Parameters of the router of one layer, 0 in a dense model."""
        return (self.hidden + self.router_bias) * self.experts

    @property
    def modulations(self) -> int:
        """Vectors that a layer computes from time step and label: two scales, shifts, gates."""
        return 6 if self.norm == "adaptive" else 0

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer; with a mixture, where the model has any."""
        return (
            self.attention_parameters
            + (max(self.experts, 1) + self.shared_experts) * self.expert_parameters
            + self.router_parameters
            + 2 * self.norm_parameters
            + self.modulations * self.hidden * (self.hidden + 1)
        )

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token (or patch, class, time step, label) and position embeddings."""
        if self.image is None:
            return (self.vocabulary + self.positions) * self.hidden
        rows = self.image.patch_numbers + 1 + self.positions + self.image.class_token
        if self.norm == "adaptive":
            rows += self.image.labels + TIME_FREQUENCIES + 1 + self.hidden + 1
        return rows * self.hidden

    @property
    def output_parameters(self) -> int:
        """Parameters of the output layer, the tied ones not counted."""
        if self.image is None:
            return 0 if self.tied else self.vocabulary * self.hidden
        modulation = 2 * self.hidden * (self.hidden + 1) if self.norm == "adaptive" else 0
        return modulation + self.vocabulary * (self.hidden + 1)

    @property
    def parameters(self) -> int:
        """Parameters of the model, each counted once."""
        return (
            sum(self.of_layer(layer).layer_parameters for layer in range(self.layers))
            + self.embedding_parameters
            + self.norm_parameters
            + self.output_parameters
        )

    @property
    def active_parameters(self) -> int:
        """Parameters that a token passes: those of all its experts, not of all experts."""
        idle = self.experts - self.experts_per_token if self.experts else 0
        mixtures = self.layers - self.dense_layers
        return self.parameters - mixtures * idle * self.expert_parameters

    def of_layer(self, layer: int) -> "ModelShape":
        """Return the shape of which layer ``layer`` is one, counted from 0: dense or a mixture."""
        return self.dense if layer < self.dense_layers else self

    @cached_property
    def dense(self) -> "ModelShape":
        """The same model without mixtures, as its first layers are; itself where it has none."""
        if not self.dense_layers:
            return self
        return replace(
            self, feed_forward=self.dense_feed_forward, experts=0, experts_per_token=0,
            shared_experts=0, dense_layers=0, dense_feed_forward=0, router_bias=False,
        )  # fmt: skip


_AT_LEAST_ONE = ("layers", "hidden", "heads", "feed_forward", "vocabulary")
