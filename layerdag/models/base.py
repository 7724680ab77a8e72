"""Contract, sizes' bounds, ``ModelSpec``, registry.

Interface of every generative model of DAGs: losses and samples.

Bounds of a model's settings and sizes, so that an untrusted file cannot exhaust the memory.

They lie far above the sizes of useful models and are checked before anything is built.

Conditions of graphs, each of which may be unknown.

A model as plain data (name, sizes, statistics, arguments), and the constructor of its module.

A checkpoint holds a ``ModelSpec`` beside the weights; the class is one of the package or one that
the process registered, and the arguments are checked against its tree of settings, so that a file
cannot name code to run.

Shape letters: A node attributes, B graphs, C numeric conditions, F feature columns, M categorical
conditions, R rows, X selected graphs.
"""

import importlib
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from layerdag.dag.dag import DAG, DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import ConfigError, UsageError
from layerdag.runtime.json_shape import found_value, plain_reason, require_shape
from layerdag.runtime.rng import derive_seed
from layerdag.runtime.settings import build_settings, did_you_mean


@dataclass(frozen=True)
class LossTerm:
    """A loss as a sum and the number of decisions in it, so that batches can be combined.

    Attributes:
        total: Scalar tensor, nats summed over ``count`` decisions.
        count: Number of decisions; a plain number where the host knows it.
    """

    total: Float[Tensor, ""]
    count: Float[Tensor, ""] | Int[Tensor, ""] | float

    def __add__(self, other: "LossTerm") -> "LossTerm":
        return LossTerm(self.total + other.total, self.count + other.count)

    def mean(self) -> Float[Tensor, ""]:
        """Return the mean in nats per decision."""
        if isinstance(self.count, Tensor):
            return self.total / self.count.clamp(min=1)
        return self.total / max(self.count, 1)


@dataclass(frozen=True, eq=False)
class JointCodeMasks:
    """The codes that nodes of samples can have by the meaning of the codes, not by training.

    Attributes:
        pairs_FF: Which codes, of all attributes end to end, one node can have together.
        graph_BF: Which codes the nodes of each graph can have.
    """

    pairs_FF: Bool[Tensor, "F F"]
    graph_BF: Bool[Tensor, "B F"]

    def repeated(self, times: int) -> "JointCodeMasks":
        """Return the same with each graph so many times, one after another."""
        return JointCodeMasks(self.pairs_FF, self.graph_BF.repeat_interleave(times, dim=0))


Faults = Callable[[Sequence[DAG]], Sequence[float]]
"""How much is wrong with each of some finished graphs, the candidates of a graph in a row."""


class PartialCheck(ABC):
    """Tells while graphs are drawn, node by node, which of them can still become valid.

    One row per graph; a sampler adds a node to every row, and copies rows.
    """

    @abstractmethod
    def start(self, rows: int) -> None:
        """Begin with so many empty graphs."""

    @abstractmethod
    def add(
        self,
        x_BA: Int[Tensor, "B A"],
        row_X: Int[Tensor, " X"],
        parent_X: Int[Tensor, " X"],
        type_X: Int[Tensor, " X"],
    ) -> Bool[Tensor, " B"]:
        """Add a node to every graph and return which of them can still become valid.

        Args:
            x_BA: Codes of the nodes.
            row_X: The row of each edge to them.
            parent_X: Number of its parent, in the order in which nodes were added.
            type_X: Its type.
        """

    @abstractmethod
    def may_end(self) -> Bool[Tensor, " B"]:
        """Return which graphs are valid as they are."""

    @abstractmethod
    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R``, each as often as it is named."""


@dataclass(frozen=True, eq=False)
class SampleRequest:
    """What to sample: one row of conditions and one seed per graph.

    Attributes:
        numeric_BC: float32 standardized conditions; NaN is unknown.
        category_BM: int64 condition codes; -1 is unknown.
        seeds: One seed per graph; a graph depends only on its own seed and conditions.
        max_nodes: Largest number of nodes; a graph that would exceed it is truncated.
        max_layers: Largest number of layers, likewise.
        steps: Denoising steps of `reference`; None takes those of training.
        guidance: Weight of classifier-free guidance; 1 is plain conditioning.
        temperature: Of every decision, after guidance: logits are divided by it. 1 is the model's
            own distribution, less is sharper; `reference` knows no other than 1.
        best_of: Graphs drawn for each one that is kept, by how well it fits its conditions and
            the neighbors that training shows; `reference` draws one.
        nodes_B: float32 number of nodes that each graph is to have; NaN, or None for all, asks for
            none. `fast` counts them down and chooses candidates by it, `reference` takes none.
        layers_B: float32 number of layers that each graph is to have, likewise; `fast` counts them
            down.
        possible: What is ruled out while `fast` samples; None rules out nothing.
        faults: What counts against candidates beside the model's own score; None is nothing.
        check: Which graphs can still become valid while `fast` draws them; particles that cannot
            are replaced by others, and a graph of which none is left is truncated.
    """

    numeric_BC: Float[Tensor, "B C"]
    category_BM: Int[Tensor, "B M"]
    seeds: tuple[int, ...]
    max_nodes: int = 10_000
    max_layers: int = 2_000
    steps: int | None = None
    guidance: float = 1.0
    temperature: float = 1.0
    best_of: int = 1
    nodes_B: Float[Tensor, " B"] | None = None
    layers_B: Float[Tensor, " B"] | None = None
    possible: JointCodeMasks | None = None
    faults: Faults | None = None
    check: PartialCheck | None = None

    @property
    def sizes_B2(self) -> Float[Tensor, "B 2"]:
        """Numbers of nodes and of layers that each graph is to have; NaN asks for none."""
        unknown_B = torch.full((len(self.seeds),), torch.nan)
        sizes = (self.nodes_B, self.layers_B)
        return torch.stack([unknown_B if s_B is None else s_B.float().cpu() for s_B in sizes], 1)

    def part(self, of: slice) -> "SampleRequest":
        """Return what is asked for of some of the graphs."""
        possible = self.possible
        return replace(
            self,
            numeric_BC=self.numeric_BC[of],
            category_BM=self.category_BM[of],
            seeds=self.seeds[of],
            nodes_B=None if self.nodes_B is None else self.nodes_B[of],
            layers_B=None if self.layers_B is None else self.layers_B[of],
            possible=possible and JointCodeMasks(possible.pairs_FF, possible.graph_BF[of]),
        )


@dataclass(frozen=True, eq=False)
class SampleResult:
    """Sampled graphs in the order of the request's seeds, nodes in layer order.

    Attributes:
        dags: The graphs; without conditions, which the caller has.
        truncated: True where a limit of the request cut the graph short.
    """

    dags: tuple[DAG, ...]
    truncated: tuple[bool, ...]


def require_request(request: object) -> None:
    """Raise UsageError if a network is asked for a number of graphs, as its generator is."""
    if not isinstance(request, SampleRequest):
        raise UsageError(
            f"A network samples a SampleRequest, found {request!r:.40}; call generator.sample(num)."
        )


class BatchSizes(ABC):
    """Sizes of all tensors of a batch, to which smaller batches can be padded."""

    @property
    @abstractmethod
    def scales(self) -> tuple[int, ...]:
        """Sizes to which time and memory are about proportional."""

    @abstractmethod
    def hold(self, other: "BatchSizes") -> bool:
        """Return whether a batch of the sizes ``other`` can be padded to these."""

    @abstractmethod
    def grown(self, other: "BatchSizes", room: float) -> "BatchSizes":
        """Return sizes that also hold a batch of the sizes ``other``.

        Args:
            other: Of a batch.
            room: Factor of what is larger there, so that somewhat larger batches fit, too.
        """


class BatchPadding(ABC):
    """Pads batches of the host, with what a model derived from them, to fixed sizes."""

    @abstractmethod
    def sizes(self, derived: DAGBatch) -> BatchSizes:
        """Return the smallest sizes to which a batch can be padded."""

    @abstractmethod
    def padded(self, derived: DAGBatch, sizes: BatchSizes) -> DAGBatch:
        """Return a batch of these sizes, which hold its own, with the same losses."""

    @abstractmethod
    def counts(self, derived: DAGBatch) -> Mapping[str, float]:
        """Return the decisions of a batch by objective."""


class DAGModel(nn.Module, ABC):
    """A layerwise generative model of attributed DAGs."""

    def derived(self, batch: DAGBatch) -> DAGBatch:
        """Return a batch of the host with the indices and sizes that ``losses`` needs of it.

        This one adds nothing. ``losses`` derives what a batch does not carry. It may depend on the
        graphs alone: other threads call it while weights change.
        """
        return batch

    @property
    def padding(self) -> BatchPadding | None:
        """How batches are padded, so that a GPU can record steps; None if they cannot be."""
        return None

    @property
    def is_sum_over_graphs(self) -> bool:
        """Whether ``losses`` are sums over graphs that threads may compute side by side.

        Then all noise comes from the generator, and nothing of a batch is kept in the model.
        """
        return False

    def prepared(self, batch: DAGBatch) -> DAGBatch:
        """Return a batch of the host on the model's device, with what is derived from it.

        It may depend on the graphs alone, as ``derived``.
        """
        return self.derived(batch).to(next(self.parameters()).device)

    @abstractmethod
    def losses(self, batch: DAGBatch, generator: torch.Generator) -> dict[str, LossTerm]:
        """Return a term per objective ("layer_size", "node", ...); noise from ``generator``.

        With the same batch, weights and generator state the result is the same, which makes
        validation likelihood deterministic when the trainer reseeds the generator.
        """

    @abstractmethod
    def objective_parameters(self) -> dict[tuple[str, ...], list[nn.Parameter]]:
        """Return the parameters by the objectives that train them, every parameter once.

        Objectives of one key share parameters and are selected together; others are independent.
        """

    def posterior_objectives(self) -> tuple[str, ...]:
        """Return the objectives of p(conditions | graph), which do not affect sampled graphs.

        Every checkpoint holds their parameters at the best validation likelihood. For generators
        likelihood is a poor measure of sample quality (docs/explanation/fast-model.md).
        """
        return ()

    @property
    def has_temperature(self) -> bool:
        """Whether sampling can have another temperature than 1."""
        return False

    @property
    def default_best_of(self) -> int:
        """Graphs drawn for each one kept where nothing else is asked for."""
        return 1

    @property
    def default_batch_size(self) -> int | None:
        """Graphs drawn side by side where nothing else is asked for; None is whatever suits."""
        return None

    def require_options(self, *, steps: int | None, best_of: int, temperature: float = 1.0) -> None:
        """Refuse options of sampling that this model cannot honor.

        Raises:
            UsageError: Names the option and what to do.
        """
        if temperature != 1.0:
            raise UsageError(
                "This model draws by denoising, which has no temperature, so "
                f"temperature={temperature:g} cannot be done; leave it out."
            )
        if best_of != 1:
            raise UsageError(
                "This model has nothing to choose among several graphs by, so "
                f"best_of={best_of} cannot be done; leave best_of out, or ask for best_of=1."
            )

    @abstractmethod
    def sample(self, request: SampleRequest) -> SampleResult:
        """Sample one graph per seed; acyclic and layer-consistent by construction.

        Raises:
            UsageError: As ``require_options``.
        """

    def log_posterior(self, batch: DAGBatch) -> Float[Tensor, " B"] | None:
        """Return log p(conditions | graph) of each graph under the posterior, nats, shape (B,).

        None if the model has no posterior p(conditions | graph).
        """
        return None

    def predict_numeric_conditions(self, batch: DAGBatch) -> Float[Tensor, "B C"] | None:
        """Return the predicted numeric conditions of each graph, standardized, shape (B, C).

        None if the model has no posterior p(conditions | graph).
        """
        return None


_LITERAL: Any = typing.Literal

MAX_WIDTH = 8192
MAX_DEPTH = 256
MAX_STEPS = 10_000
MAX_CODES = 100_000
"""Codes of one attribute or condition, and edge types."""

MAX_COLUMNS = 1_000
"""Attributes of a node, conditions of a graph."""


def require_between(model: str, low: int | float, high: int | float, **values: int | float) -> None:
    """Refuse settings that are not between ``low`` and ``high``, both included.

    Raises:
        ConfigError: Names the model and the first setting out of bounds; NaN is.
    """
    for name, value in values.items():
        if not low <= value <= high:
            raise ConfigError(
                f"model '{model}': '{name}' must be from {low:g} to {high:g}, found {value!r:.40}."
            )


def require_choices(model: str, group: str, settings: Any) -> None:
    """Refuse words that are not among the choices a setting is annotated with (``Literal``).

    Args:
        model: For the message.
        group: Place of the settings in those of the model ("encoder"), or "".
        settings: A dataclass.

    Raises:
        ConfigError: Names the model, the setting and its choices.
    """
    for name, hint in typing.get_type_hints(type(settings)).items():
        literals = [
            part for part in (hint, *typing.get_args(hint)) if typing.get_origin(part) is _LITERAL
        ]
        choices = [choice for literal in literals for choice in typing.get_args(literal)]
        value = getattr(settings, name)
        optional = type(None) in typing.get_args(hint)
        if choices and value not in choices and not (optional and value is None):
            where = f"{group}.{name}" if group else name
            raise ConfigError(
                f"model '{model}': '{where}' must be {' or '.join(map(repr, choices))}, found "
                f"{value!r:.40}."
            )


def require_few(sizes: GraphSizes) -> None:
    """Refuse sizes that no data set has.

    Raises:
        ConfigError: If there are more than ``MAX_COLUMNS`` attributes or conditions, or more than
            ``MAX_CODES`` codes of one; names the number.
    """
    columns = len(sizes.attributes), sizes.numeric_conditions, len(sizes.category_conditions)
    codes = *sizes.attributes, *sizes.category_conditions, sizes.edge_types
    if not sizes.attributes or min(codes) < 1 or min(columns) < 0:
        raise ConfigError("A model needs at least one attribute, and positive numbers of codes.")
    if max(columns) > MAX_COLUMNS:
        raise ConfigError(
            f"A model of {max(columns)} columns is refused; {MAX_COLUMNS} is the most."
        )
    if max(codes) > MAX_CODES:
        raise ConfigError(f"A column of {max(codes)} codes is refused; {MAX_CODES} is the most.")


@dataclass(frozen=True, eq=False)
class Conditions:
    """Encoded conditions of B graphs.

    Attributes:
        numeric_BC: Standardized numbers; NaN is unknown.
        category_BM: int64 codes; -1 is unknown.
        sizes_B2: Numbers of nodes and of layers asked for; NaN is unknown, None is unknown for all.
    """

    numeric_BC: Float[Tensor, "B C"]
    category_BM: Int[Tensor, "B M"]
    sizes_B2: Float[Tensor, "B 2"] | None = None

    def unknown(self) -> "Conditions":
        """Return conditions of the same shape of which nothing is known."""
        return Conditions(
            torch.full_like(self.numeric_BC, torch.nan), torch.full_like(self.category_BM, -1)
        )

    @property
    def known_sizes_B2(self) -> Float[Tensor, "B 2"]:
        """Numbers of nodes and of layers asked for, NaN where they are unknown, shape (B, 2)."""
        if self.sizes_B2 is not None:
            return self.sizes_B2
        return torch.full((len(self.category_BM), 2), torch.nan, device=self.category_BM.device)

    def dropped(self, uniform: Float[Tensor, "B _"], rate: float) -> "Conditions":
        """Make conditions unknown at random: each with probability ``rate``, and all together.

        The two kinds of dropping allow requests for any subset of conditions, and for none,
        which classifier-free guidance needs (Ho and Salimans, arXiv 2207.12598).

        Args:
            uniform: In [0, 1): one per number, one per category, one for each of the two sizes if
                they are asked for, and one for all of a graph.
            rate: Probability of either kind of dropping.
        """
        drop = (uniform[:, :-1] < rate) | (uniform[:, -1:] < rate)
        count = self.numeric_BC.shape[1]
        stop = count + self.category_BM.shape[1]
        sizes_B2 = self.sizes_B2
        return Conditions(
            self.numeric_BC.masked_fill(drop[:, :count], torch.nan),
            self.category_BM.masked_fill(drop[:, count:stop], -1),
            None if sizes_B2 is None else sizes_B2.masked_fill(drop[:, stop:], torch.nan),
        )

    def of(self, row_R: Shaped[Tensor, " R"]) -> "Conditions":
        """Return the conditions of the graphs ``row_R``."""
        sizes_R2 = None if self.sizes_B2 is None else self.sizes_B2[row_R]
        return Conditions(self.numeric_BC[row_R], self.category_BM[row_R], sizes_R2)

    def followed_by(self, other: "Conditions") -> "Conditions":
        """Return these conditions, then those of ``other``."""
        return Conditions(
            torch.cat([self.numeric_BC, other.numeric_BC]),
            torch.cat([self.category_BM, other.category_BM]),
            torch.cat([self.known_sizes_B2, other.known_sizes_B2]),
        )


_HOMES = {
    "fast": ("layerdag.models.fast.model:FastLayerDAG", "layerdag.models.config:FastConfig"),
    "reference": (
        "layerdag.models.reference.model:ReferenceLayerDAG",
        "layerdag.models.config:ReferenceConfig",
    ),
}
_REGISTERED: dict[str, tuple[type[Any], type[Any]]] = {}


def register_model(name: str, cls: type[DAGModel], config: type[Any]) -> None:
    """Add a model of your own, which ``ld.train(data, name)`` then trains.

    Checkpoints hold the name alone; a process that loads one registers the model first.

    Args:
        name: What checkpoints and settings call it.
        cls: Its class; the constructor takes ``GraphSizes``, ``GraphStatistics`` and the settings.
        config: Its settings, a dataclass whose fields have defaults.

    Raises:
        UsageError: If the package itself has that name, or the classes are of another kind.
    """
    if name in _HOMES:
        raise UsageError(f"layerdag has a model '{name}' itself; take another name.")
    if not (isinstance(cls, type) and issubclass(cls, DAGModel) and is_dataclass(config)):
        raise UsageError(
            f"The model '{name}' needs a subclass of layerdag.models.DAGModel and a dataclass of "
            f"settings, found {cls!r:.60} and {config!r:.60}."
        )
    _REGISTERED[name] = (cls, config)


def model_names() -> tuple[str, ...]:
    """Return the names of all models: those of the package, then those that were registered."""
    return (*_HOMES, *_REGISTERED)


@dataclass(frozen=True)
class ModelSpec:
    """Everything needed to build a model except its weights.

    Attributes:
        name: "reference", "fast", or that of a registered model.
        sizes: Counts of the data set's schema.
        statistics: Measured on the training graphs.
        arguments: Settings of the model as nested plain data; what is left out has its default.
    """

    name: str
    sizes: GraphSizes
    statistics: GraphStatistics
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> Any:
        """The settings as the tree of dataclasses that the model's constructor takes.

        Raises:
            ConfigError: If the model or a setting is unknown, or a value is out of bounds.
        """
        return model_config(self.name, self.arguments)

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as JSON-serializable data."""
        return {
            "name": self.name,
            "sizes": asdict(self.sizes),
            "statistics": self.statistics.to_dict(),
            "arguments": dict(self.arguments),
        }

    @classmethod
    def from_dict(cls, data: Any) -> "ModelSpec":
        """Return the spec that ``to_dict`` wrote.

        Raises:
            ConfigError: If an entry is missing or has another type.
        """
        try:
            require_shape(data, _SHAPE)
            sizes = GraphSizes(
                attributes=_counts(data["sizes"]["attributes"]),
                edge_types=int(data["sizes"]["edge_types"]),
                numeric_conditions=int(data["sizes"]["numeric_conditions"]),
                category_conditions=_counts(data["sizes"]["category_conditions"]),
            )
            statistics = GraphStatistics.from_dict(data["statistics"])
            counted = tuple(len(counts) for counts in statistics.attributes)
            if counted != sizes.attributes or len(statistics.edge_types) != sizes.edge_types:
                raise ValueError(f"statistics count {counted} codes, sizes {sizes.attributes}")
            return cls(str(data["name"]), sizes, statistics, _plain(data["arguments"]))
        except (
            *(KeyError, TypeError, ValueError, AttributeError, IndexError),
            *(OverflowError, RecursionError),
        ) as error:
            raise ConfigError(
                f"The model's description cannot be read: {plain_reason(error)}."
            ) from error


def model_config(name: str, values: object) -> Any:
    """Return the tree of settings of the model ``name``, from nested plain data or as it is.

    Raises:
        ConfigError: If the model or a setting is unknown, or a value is out of bounds.
    """
    return build_settings(_part(name, 1), values, "model")


def build_model(spec: ModelSpec, seed: int = 0) -> DAGModel:
    """Return the model with initial weights drawn from ``seed``; no global generator is touched.

    Raises:
        ConfigError: If the name or a setting is unknown, or a value is out of bounds.
    """
    require_few(spec.sizes)
    config = spec.config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "weights"))
        try:
            model: DAGModel = _part(spec.name, 0)(spec.sizes, spec.statistics, config)
        except (TypeError, ValueError, RuntimeError, OverflowError, MemoryError) as error:
            told = plain_reason(error) if isinstance(error, TypeError | ValueError) else error
            raise ConfigError(f"model '{spec.name}' cannot be built: {told}.") from error
        return model


def build_without_weights(spec: ModelSpec) -> DAGModel:
    """Return the model on the meta device, for the shapes of its weights: no memory is spent.

    Raises:
        ConfigError: If the name or a setting is unknown, or a value is out of bounds.
    """
    with _WithoutContent():
        return build_model(spec)


class _WithoutContent(TorchFunctionMode):
    """Weights are made on the meta device and not drawn; small tables are computed as usual.

    On the meta device torch would compute tables in Python, after it has imported its compiler and
    sympy, which takes a second.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _MADE:
            made = torch.empty if func is torch.randn else func
            return made(*args, **{**kwargs, "device": "meta"})
        first = kwargs["tensor"] if "tensor" in kwargs else (args or (None,))[0]
        if not isinstance(first, Tensor) or not first.is_meta:
            return func(*args, **kwargs)
        if func in _FILLING:
            return first
        if func is Tensor.mul:  # of weights with their scale
            return torch.empty(first.shape, dtype=first.dtype, device="meta")
        return func(*args, **kwargs)


_MADE = (torch.empty, torch.randn, torch.zeros, torch.ones, torch.full)
_FILLING = (
    nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_,
    Tensor.normal_, Tensor.uniform_, Tensor.fill_, Tensor.zero_,
)  # fmt: skip


def _part(name: str, which: int) -> type[Any]:
    """Return the class (0) or the settings (1) of the model ``name``, imported on demand."""
    if name in _REGISTERED:
        return _REGISTERED[name][which]
    if name not in _HOMES:
        raise ConfigError(
            f"There is no model '{name}'.{did_you_mean(name, model_names())} "
            f"Known are {', '.join(model_names())}; layerdag.models.register_model adds others."
        )
    module, _, cls = _HOMES[name][which].partition(":")
    part: type[Any] = getattr(importlib.import_module(module), cls)
    return part


_SHAPE = {
    "name": str,
    "sizes": {
        "attributes": [int],
        "edge_types": int,
        "numeric_conditions": int,
        "category_conditions": [int],
    },
    "statistics": dict,
    "arguments": dict,
}


def _counts(values: Any) -> tuple[int, ...]:
    counts = tuple(int(value) for value in values)
    if any(count < 1 for count in counts):
        raise ValueError(f"counts must be positive, found {counts}")
    return counts


def _plain(values: Any) -> dict[str, Any]:
    for name, value in dict(values).items():
        if isinstance(value, Mapping):
            _plain(value)
        elif not isinstance(name, str) or not isinstance(value, int | float | str | list | None):
            raise ValueError(f"argument '{name}' is {found_value(value)}")
    return dict(values)
