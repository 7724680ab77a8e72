"""A model as plain data (name, sizes, statistics, arguments), and the constructor of its module.

A checkpoint holds a ``ModelSpec`` beside the weights; the class is chosen from a fixed table and
the arguments are checked against its constructor, so that a file cannot name code to run.
"""

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from layerdag._runtime import derive_seed, with_new_names
from layerdag.errors import ConfigError
from layerdag.graph import GraphSizes, GraphStatistics
from layerdag.models._base import DAGModel
from layerdag.models._bounds import require_few, require_types

MODEL_NAMES = ("fast", "reference")

Plain = int | float | bool | str

RENAMED_ARGUMENTS = {"plans": "predict_out_degree"}
"""New name of a model's setting by the old one, which checkpoints and configs may still have."""


@dataclass(frozen=True)
class ModelSpec:
    """Everything needed to build a model except its weights.

    Attributes:
        name: "reference" or "fast".
        sizes: Counts of the data set's schema.
        statistics: Measured on the training graphs.
        arguments: Further constructor arguments by name.
    """

    name: str
    sizes: GraphSizes
    statistics: GraphStatistics
    arguments: Mapping[str, Plain] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if RENAMED_ARGUMENTS.keys() & self.arguments.keys():
            arguments = with_new_names(self.arguments, RENAMED_ARGUMENTS, "model.")
            object.__setattr__(self, "arguments", arguments)

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


def build_model(spec: ModelSpec, seed: int = 0) -> DAGModel:
    """Return the model with initial weights drawn from ``seed``; no global generator is touched.

    Raises:
        ConfigError: If the name or an argument is unknown, or a value is out of bounds.
    """
    model_class = _model_class(spec.name)
    require_few(spec.sizes)
    _check_arguments(model_class, spec)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "weights"))
        try:
            return model_class(sizes=spec.sizes, statistics=spec.statistics, **spec.arguments)
        except (TypeError, ValueError, RuntimeError, OverflowError, MemoryError) as error:
            raise ConfigError(f"model '{spec.name}' cannot be built: {error}.") from error


def _model_class(name: str) -> type[Any]:
    """Return the class for ``name``, imported on demand."""
    if name == "reference":
        from layerdag.models.diffusion import ReferenceLayerDAG

        return ReferenceLayerDAG
    if name == "fast":
        from layerdag.models.autoregressive import FastLayerDAG

        return FastLayerDAG
    near = difflib.get_close_matches(name, MODEL_NAMES, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else f"; known are {', '.join(MODEL_NAMES)}."
    raise ConfigError(f"There is no model '{name}'{hint}")


def _check_arguments(model_class: type[Any], spec: ModelSpec) -> None:
    """Raise ConfigError if an argument is not one of the constructor's."""
    known = set(inspect.signature(model_class).parameters) - {"sizes", "statistics"}
    for name in spec.arguments:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {sorted(known)}."
            raise ConfigError(f"model '{spec.name}' has no argument '{name}'; {hint}")
    require_types(spec.name, model_class.__init__, spec.arguments)


def _counts(values: Any) -> tuple[int, ...]:
    """Return a list of positive integers as a tuple."""
    counts = tuple(int(value) for value in values)
    if any(count < 1 for count in counts):
        raise ValueError(f"counts must be positive, found {counts}")
    return counts


def _plain(values: Any) -> dict[str, Plain]:
    """Return a mapping of names to numbers, strings or booleans."""
    for name, value in dict(values).items():
        if not isinstance(name, str) or not isinstance(value, int | float | bool | str):
            raise TypeError(f"argument {name!r} is {value!r}")
    return dict(values)
