"""The flags of STAGE, symbolic sizes, names of files.

Sizes as sums of products of symbols, such as ``S*R/(cp*tp)``: exact, and comparable by form.

Two dimensions of equal size may differ in form, and STAGE tells them apart by form; so symbols are
kept until the end. Numbers are fractions: STAGE cuts what is left to integers.
"""

import ast
import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cache, cached_property
from pathlib import Path
from typing import final

from layerdag.errors import ConfigError, UsageError
from layerdag.runtime.files import settle, write_files
from layerdag.runtime.terminal import track
from layerdag.traces.chakra.workload import groups_in_place
from layerdag.traces.trace import LazyTraces, Workload
from layerdag.workloads.transformer.fit import MAX_LAYER_RUNS

Product = tuple[tuple[str, int], ...]
"""Exponents of symbols, in order of symbols."""


@final
@dataclass(frozen=True)
class Dim:
    """A sum of products.

    Attributes:
        terms: Product of symbols and its coefficient, sorted.
    """

    terms: tuple[tuple[Product, Fraction], ...]

    @classmethod
    def number(cls, value: int) -> "Dim":
        """Return a number as a dimension."""
        return cls._of({(): Fraction(value)})

    @classmethod
    def symbol(cls, name: str) -> "Dim":
        """Return a symbol as a dimension."""
        return cls._of({((name, 1),): Fraction(1)})

    @classmethod
    def _of(cls, found: Mapping[Product, Fraction]) -> "Dim":
        return cls(tuple(sorted((product, c) for product, c in found.items() if c)))

    @cached_property
    def symbols(self) -> frozenset[str]:
        """All symbols that occur."""
        return frozenset(name for product, _ in self.terms for name, _ in product)

    def __add__(self, other: "Dim") -> "Dim":
        found = dict(self.terms)
        for product, coefficient in other.terms:
            found[product] = found.get(product, Fraction(0)) + coefficient
        return self._of(found)

    def __mul__(self, other: "Dim") -> "Dim":
        found: dict[Product, Fraction] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                product = _joined(left, right)
                found[product] = found.get(product, Fraction(0)) + a * b
        return self._of(found)

    def __truediv__(self, other: "Dim") -> "Dim":
        ((product, coefficient),) = other.terms  # no table divides by a sum
        inverse = tuple((name, -exponent) for name, exponent in product)
        return self * self._of({inverse: 1 / coefficient})

    def without(self, names: Iterable[str]) -> "Dim":
        """Return the dimension with some symbols set to one."""
        gone = set(names)
        total = NOTHING
        for product, coefficient in self.terms:
            left = tuple(factor for factor in product if factor[0] not in gone)
            total += self._of({left: coefficient})
        return total

    def value(self, numbers: Mapping[str, int]) -> Fraction:
        """Return the size for given symbols."""
        total = Fraction(0)
        for product, coefficient in self.terms:
            for name, exponent in product:
                coefficient *= Fraction(numbers[name]) ** exponent
            total += coefficient
        return total


ONE = Dim.number(1)
NOTHING = Dim(())


def product(dims: Iterable[Dim]) -> Dim:
    """Return the number of elements of a shape."""
    return math.prod(dims, start=ONE)


def _joined(left: Product, right: Product) -> Product:
    exponents = dict(left)
    for name, exponent in right:
        exponents[name] = exponents.get(name, 0) + exponent
    return tuple(sorted(factor for factor in exponents.items() if factor[1]))


def parse_dims(text: str, meaning: Mapping[str, Dim]) -> tuple[Dim, ...]:
    """Return the dimensions of a table's text, separated by commas.

    Args:
        text: Such as ``B/dp, S/cp, D``.
        meaning: What some names stand for; others are symbols.
    """
    return tuple(parse_dim(part, meaning) for part in text.split(",")) if text.strip() else ()


def parse_dim(text: str, meaning: Mapping[str, Dim]) -> Dim:
    """Return one dimension of a table's text."""
    return _evaluated(_parsed(text.strip()), meaning)


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _evaluated(node: ast.expr, meaning: Mapping[str, Dim]) -> Dim:
    if isinstance(node, ast.Name):
        return meaning.get(node.id) or Dim.symbol(node.id)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Dim.number(node.value)
    if not isinstance(node, ast.BinOp):
        raise TypeError(f"a table has {ast.dump(node)}")
    left, right = _evaluated(node.left, meaning), _evaluated(node.right, meaning)
    if isinstance(node.op, ast.Add):
        return left + right
    return left * right if isinstance(node.op, ast.Mult) else left / right


@final
@dataclass(frozen=True)
class StageLayout:
    """Where STAGE puts traces and groups.

    Attributes:
        folder: ``--output_dir``.
        name: ``--output_name``; "%d" stands for the rank, and without it the name becomes
            ``NAME.%d.et``.
    """

    folder: Path
    name: str

    @property
    def pattern(self) -> str:
        """Name of a rank's file, "%d" for the rank."""
        return self.name if "%d" in self.name else f"{self.name}.%d.et"

    @property
    def _stem(self) -> str:
        return self.pattern.replace(".%d", "").removesuffix(".et")

    @property
    def groups(self) -> Path:
        """The file of communicator groups."""
        return self.folder / self.pattern.replace(".%d", "").replace(".et", ".json")

    def file(self, rank: int) -> Path:
        """Return the file of a rank."""
        return self.folder / self.pattern.replace("%d", str(rank))

    def require_free(self, *, overwrite: bool) -> None:
        """Raise UsageError if traces lie there and may not be replaced, or the name is no name."""
        if "/" in self.name or not self._stem:
            raise UsageError(f"--output_name '{self.name}' must be a file name, such as w.%d.et.")
        settle(self.folder / self._stem)
        standing = self.standing()
        if standing and not overwrite:
            raise UsageError(
                f"{standing[0]} is there already; name another place, or allow that it is replaced "
                "(--overwrite; overwrite=True in Python)."
            )

    def standing(self) -> list[Path]:
        """Return the files that lie there already."""
        before, _, after = self.pattern.partition("%d")
        form = re.compile(rf"{re.escape(before)}\d{{1,9}}{re.escape(after)}")
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted(p for p in found if form.fullmatch(p.name) or p == self.groups)

    def write(self, workload: Workload, *, overwrite: bool = False) -> None:
        """Write the traces of all ranks and the groups; no file is in its place before all are.

        Args:
            workload: That of ``StageJob.workload``.
            overwrite: Whether files may be replaced, ranks that the new job lacks included.

        Raises:
            UsageError: If files lie there and may not be replaced.
        """
        self.require_free(overwrite=overwrite)
        if not isinstance(workload.traces, LazyTraces):
            raise TypeError("a workload of StageJob.workload() is needed")
        self.folder.mkdir(parents=True, exist_ok=True)
        files = track(workload.traces.files(), "writing ranks", total=workload.num_ranks)
        ranks = ((self.file(rank), data) for rank, data in files)
        groups = groups_in_place(workload.groups, self.groups)
        write_files(self.folder / self._stem, itertools.chain(groups, ranks), self.standing())


MODELS = ("dense", "gpt", "llama", "moe")


@final
@dataclass(frozen=True)
class StageFlags:
    """What ``main.py`` of STAGE takes, under its names and with its defaults.

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
            self._check_mixture()
        self._check_stages()

    def _check_mixture(self) -> None:
        if not self.tpsp:
            raise ConfigError("--model_type moe needs --tpsp true, as in STAGE.")
        if self.experts % self.ep:
            raise ConfigError(
                f"--experts {self.experts} cannot be spread evenly over --ep {self.ep} ranks."
            )

    def _check_stages(self) -> None:
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
        ranks = 1
        for degree in self.degrees.values():
            ranks *= degree
        return ranks

    @property
    def ranks(self) -> int:
        """All ranks."""
        return self.ranks_per_stage * self.pp

    @cached_property
    def stage_of_layer(self) -> tuple[int, ...]:
        """Stage of each layer: contiguous blocks, the early ones take the remainder."""
        each, more = divmod(self.num_stacks, self.pp)
        return tuple(s for s in range(self.pp) for _ in range(each + (s < more)))

    @property
    def stage_of_output(self) -> int:
        """Stage of output embedding and loss: not always the last one, as in STAGE."""
        return self.pp - 1 if self.mixed_precision else (self.num_stacks - 1) % self.pp

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Value of each symbol of the tables."""
        sizes = {
            "B": self.sequences,
            "S": self.seq,
            "D": self.dmodel,
            "H": self.head,
            "K": self.kvhead,
            "F": self.dff,
            "V": self.dvocal,
            "X": self.experts,
            "R": self.kexperts,
        }
        return sizes | self.degrees
