"""The flags of STAGE, under its names and with its defaults."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import final

from layerdag.errors import ConfigError
from layerdag.workloads.transformer.fit import MAX_LAYER_RUNS
from layerdag.workloads.transformer.schedule import layers_of_stage

MODELS = ("dense", "gpt", "llama", "moe")


@final
@dataclass(frozen=True)
class StageFlags:
    """The flags of STAGE's ``main.py``.

    Attributes:
        model_type: dense, gpt, llama or moe; dense and llama without mixed precision are gpt.
        num_stacks: Layers.
        dp: Data parallel degree.
        tp: Tensor parallel degree; the dense models multiply it by ``ep``.
        sp: Context parallel degree (``cp`` in STAGE's own tables).
        ep: Expert parallel degree.
        pp: Pipeline parallel degree.
        weight_sharded: Whether the weights of a layer are sharded over the data parallel ranks.
        tpsp: Whether residuals are sharded over the tensor parallel ranks, too.
        mixed_precision: In STAGE also what chooses the gated model and the last stage's place.
        batch: Sequences of a step.
        micro_batch: Sequences of a micro-batch; -1: the batch.
        seq: Tokens of a sequence.
        dvocal: Vocabulary.
        dmodel: Width.
        dff: Width of the feed-forward layer.
        head: Query heads.
        kvhead: Key and value heads.
        experts: Experts of a layer.
        kexperts: Experts of a token.
        activation_recompute: Without effect, as in STAGE.

    Raises:
        ConfigError: If STAGE could not make traces of them.
    """

    model_type: str = "dense"
    num_stacks: int = 80
    dp: int = 1
    tp: int = 1
    sp: int = 1
    ep: int = 1
    pp: int = 1
    weight_sharded: bool = False
    tpsp: bool = True
    mixed_precision: bool = False
    batch: int = 64
    micro_batch: int = -1
    seq: int = 1024
    dvocal: int = 32000
    dmodel: int = 8192
    dff: int = 28672
    head: int = 64
    kvhead: int = 8
    experts: int = 8
    kexperts: int = 2
    activation_recompute: bool = False

    def __post_init__(self) -> None:
        if self.model_type not in MODELS:
            raise ConfigError(
                f"--model_type '{self.model_type}' is none of STAGE's: {', '.join(MODELS)}."
            )
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is int and value < 1 and (field.name, value) != ("micro_batch", -1):
                raise ConfigError(f"--{field.name} {value} must be at least 1.")
        if self.batch % self.sequences:
            raise ConfigError(
                f"--batch {self.batch} cannot be cut into micro-batches of {self.sequences} "
                "(--micro_batch); STAGE asks for a divisor."
            )
        runs = self.num_stacks * self.micro_batches
        if runs > MAX_LAYER_RUNS:
            raise ConfigError(
                f"--num_stacks {self.num_stacks} and {self.micro_batches:,} micro-batches are "
                f"{runs:,} runs of a layer, each of some thirty nodes; at most "
                f"{MAX_LAYER_RUNS:,} are taken."
            )
        if self.is_mixture:
            if not self.tpsp:
                raise ConfigError("--model_type moe needs --tpsp true, as in STAGE.")
            if self.experts % self.ep:
                raise ConfigError(
                    f"--experts {self.experts} cannot be spread evenly over --ep {self.ep} ranks."
                )
        used = {*self.stage_of_layer, self.stage_of_output}
        empty = [stage for stage in range(self.pp) if stage not in used]
        if empty:
            raise ConfigError(
                f"--pp {self.pp} leaves stage {empty[0]} without a layer of --num_stacks "
                f"{self.num_stacks}, where STAGE stops; take at most as many stages as layers."
            )

    @property
    def is_mixture(self) -> bool:
        """Whether layers have experts."""
        return self.model_type == "moe"

    @property
    def is_gated(self) -> bool:
        """Whether it is the LLaMA-like graph: gate and grouped heads."""
        return self.model_type in ("dense", "llama") and self.mixed_precision

    @property
    def sequences(self) -> int:
        """Sequences of a micro-batch."""
        return self.batch if self.micro_batch == -1 else self.micro_batch

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches."""
        return self.batch // self.sequences

    @cached_property
    def degrees(self) -> dict[str, int]:
        """Spatial degrees, the one whose ranks are nearest first."""
        if self.is_mixture:
            return {"dp": self.dp, "tp": self.tp, "cp": self.sp, "ep": self.ep}
        return {"dp": self.dp, "tp": self.tp * self.ep, "cp": self.sp}

    @property
    def ranks_per_stage(self) -> int:
        """Ranks of a pipeline stage."""
        return math.prod(self.degrees.values())

    @property
    def ranks(self) -> int:
        """All ranks."""
        return self.ranks_per_stage * self.pp

    @cached_property
    def stage_of_layer(self) -> tuple[int, ...]:
        """Stage of each layer: contiguous blocks, the early ones take the remainder."""
        return tuple(
            stage
            for stage in range(self.pp)
            for _ in layers_of_stage(self.num_stacks, stage, self.pp)
        )

    @property
    def stage_of_output(self) -> int:
        """Stage of output embedding and loss: not always the last one, as in STAGE."""
        return self.pp - 1 if self.mixed_precision else (self.num_stacks - 1) % self.pp

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Value of each symbol of the tables."""
        widths = {"D": self.dmodel, "H": self.head, "K": self.kvhead, "F": self.dff}
        widths |= {"V": self.dvocal, "X": self.experts, "R": self.kexperts}
        return {"B": self.sequences, "S": self.seq, **widths, **self.degrees}
