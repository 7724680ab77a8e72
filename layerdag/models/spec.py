"""A model as plain data (name, sizes, statistics, arguments), and the constructor of its module.

A checkpoint holds a ``ModelSpec`` beside the weights; the class is one of the package or one that
the process registered, and the arguments are checked against its tree of settings, so that a file
cannot name code to run.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from layerdag.dag.dag import GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import ConfigError, UsageError
from layerdag.models.base import DAGModel
from layerdag.models.bounds import require_few
from layerdag.runtime.json_shape import from_json, plain_reason, require_shape
from layerdag.runtime.rng import derive_seed
from layerdag.runtime.settings import build_settings, did_you_mean

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

    Its constructor takes ``GraphSizes``, ``GraphStatistics`` and the settings, a dataclass whose
    fields have defaults.

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
    """Everything needed to build a model except its weights."""

    name: str  # "reference", "fast", or that of a registered model
    sizes: GraphSizes  # counts of the data set's schema
    statistics: GraphStatistics  # measured on the training graphs
    arguments: Mapping[str, Any] = field(default_factory=dict)  # settings as plain data

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
            sizes = from_json(GraphSizes, data["sizes"], "sizes")
            require_few(sizes)
            statistics = GraphStatistics.from_dict(data["statistics"])
            counted = tuple(len(counts) for counts in statistics.attributes)
            if counted != sizes.attributes or len(statistics.edge_types) != sizes.edge_types:
                raise ValueError(f"statistics count {counted} codes, sizes {sizes.attributes}")
            return cls(data["name"], sizes, statistics, data["arguments"])
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
            f"Known are {', '.join(model_names())}; layerdag.register_model adds others."
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
