"""A model as plain data (name, sizes, statistics, arguments), and the constructor of its module.

A checkpoint holds a ``ModelSpec`` beside the weights; the class is chosen from a fixed table and
the arguments are checked against its tree of settings, so that a file cannot name code to run.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from layerdag._runtime import build_settings, derive_seed, did_you_mean
from layerdag.errors import ConfigError
from layerdag.graph import GraphSizes, GraphStatistics
from layerdag.models._base import DAGModel
from layerdag.models._bounds import require_few

_HOMES = {
    "fast": ("layerdag.models.autoregressive", "FastLayerDAG", "FastConfig"),
    "reference": ("layerdag.models.diffusion", "ReferenceLayerDAG", "ReferenceConfig"),
}
MODEL_NAMES = tuple(_HOMES)


@dataclass(frozen=True)
class ModelSpec:
    """Everything needed to build a model except its weights.

    Attributes:
        name: "reference" or "fast".
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
            raise ConfigError(f"The model's description cannot be read: {error!r}.") from error


def model_config(name: str, values: object) -> Any:
    """Return the tree of settings of the model ``name``, from nested plain data or as it is.

    Raises:
        ConfigError: If the model or a setting is unknown, or a value is out of bounds.
    """
    return build_settings(_part(name, 2), values, "model")


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
            model: DAGModel = _part(spec.name, 1)(spec.sizes, spec.statistics, config)
        except (TypeError, ValueError, RuntimeError, OverflowError, MemoryError) as error:
            raise ConfigError(f"model '{spec.name}' cannot be built: {error}.") from error
        return model


def build_without_weights(spec: ModelSpec) -> DAGModel:
    """Return the model on the meta device, for the shapes of its weights: no memory is spent.

    Raises:
        ConfigError: If the name or a setting is unknown, or a value is out of bounds.
    """
    with torch.device("meta"), _NothingDrawn():
        return build_model(spec)


class _NothingDrawn(TorchFunctionMode):
    """Initial weights are not drawn, nor numbers summed: on the meta device there is nothing.

    For each of these operations torch would import its compiler there, which takes a second, and
    then run it in Python.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.randn:
            return torch.empty(*args, **kwargs)
        if func in _FILLING:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        if func in _SAME_SHAPE:
            return torch.empty(args[0].shape, dtype=args[0].dtype)
        return func(*args, **kwargs)


_FILLING = (
    nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_,
    Tensor.normal_, Tensor.uniform_, Tensor.fill_, Tensor.zero_,
)  # fmt: skip
_SAME_SHAPE = (Tensor.cumsum, Tensor.mul, Tensor.sub, torch.log1p)
"""With a number or a tensor of the same shape, as the constructors use them."""


def _part(name: str, which: int) -> type[Any]:
    """Return the class (1) or the settings (2) of the model ``name``, imported on demand."""
    if name not in _HOMES:
        raise ConfigError(
            f"There is no model '{name}'.{did_you_mean(name, MODEL_NAMES)} "
            f"Known are {', '.join(MODEL_NAMES)}."
        )
    part: type[Any] = getattr(importlib.import_module(_HOMES[name][0]), _HOMES[name][which])
    return part


def _counts(values: Any) -> tuple[int, ...]:
    """Return a list of positive integers as a tuple."""
    counts = tuple(int(value) for value in values)
    if any(count < 1 for count in counts):
        raise ValueError(f"counts must be positive, found {counts}")
    return counts


def _plain(values: Any) -> dict[str, Any]:
    """Return a mapping of names to numbers, strings, booleans, or lists or groups of them."""
    for name, value in dict(values).items():
        if not isinstance(name, str):
            raise TypeError(f"argument {name!r} is {value!r}")
        if isinstance(value, Mapping):
            _plain(value)
        elif not isinstance(value, int | float | bool | str | list | None):
            raise TypeError(f"argument {name!r} is {value!r}")
    return dict(values)
