"""Model specs for a data set, and warm starts from another checkpoint.

Which weights of a model depend on the data's words, bins and conditions, and how.

Every other weight has the same shape and meaning for any data set.

Shape letters: F features, K codes, 1 one more than that.

Carrying the weights of a trained model over to a new one.

Shape letters: K rows of the new model, J rows of the old one, F all other entries of a row.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerdag.dag.dag import GraphSizes
from layerdag.dag.statistics import edge_type_sets
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.kept import kept_statistics
from layerdag.errors import ConfigError
from layerdag.graph.attributed_graph import SIZE_CONDITIONS
from layerdag.models.base import DAGModel, ModelSpec, build_model, model_config
from layerdag.models.config import FastConfig
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.layers import CountEncoder
from layerdag.models.reference.model import ReferenceLayerDAG
from layerdag.runtime.settings import flattened, grouped
from layerdag.schema.attributes import CategoryAttribute
from layerdag.schema.schema import GraphSchema
from layerdag.training.checkpoint import (
    BEST,
    LAST,
    META,
    InitialWeights,
    LoadedCheckpoint,
    Origin,
    checkpoint_fingerprint,
    checkpoint_schema,
    load_checkpoint,
    pretrained_checkpoint,
)
from layerdag.training.weight_axes import (
    BY_NAME,
    AttributeCodes,
    CategoryCodes,
    CountBins,
    EdgeTypes,
    Fixed,
    InDegreeRows,
    NumericFeatures,
    NumericMean,
    NumericSpread,
    RowSource,
    Segment,
    WeightAxis,
    attribute_source,
    by_same_name,
    category_source,
    numeric_pair,
    radial,
    value_and_one,
)

_OPEN = "predict_out_degree"


def spec_for(data: GraphDataset, name: str, settings: Mapping[str, Any] | object) -> ModelSpec:
    """Return model ``name`` with the sizes and statistics of a data set.

    ``predict_out_degree=None`` leaves it to the kind of the graphs whether the number of children
    is drawn with every node: it is in flow graphs, not in jobs of traces. For "fast" this is the
    default. So are ``neighbors=None`` and ``attributes=None`` of ``constraints``: "observed" in
    jobs, "unlimited" in flow graphs; ``edge_types=None`` is "observed" in programs alone.
    ``remaining_sizes=None`` of ``conditioning`` is "encoded" in
    jobs whose numbers of nodes and layers are conditions.

    Args:
        data: The data set.
        name: "fast" or "reference".
        settings: Nested plain data, or the tree that the model's constructor takes.

    Raises:
        ConfigError: If the model or a setting is unknown, or a value is out of bounds.
    """
    config = model_config(name, settings)
    if any(field.name == _OPEN for field in fields(config)) and getattr(config, _OPEN) is None:
        config = replace(config, **{_OPEN: predicts_out_degree(data)})
    if hasattr(config, "constraints"):
        choice = "unlimited" if data.schema.kind == "flow" else "observed"
        left_open = {
            name: choice
            for name in ("neighbors", "attributes")
            if getattr(config.constraints, name) is None
        }
        if config.constraints.edge_types is None:
            left_open["edge_types"] = "observed" if data.schema.kind == "program" else "unlimited"
        config = replace(config, constraints=replace(config.constraints, **left_open))
    conditioning = getattr(config, "conditioning", None)
    if conditioning is not None and getattr(conditioning, "remaining_sizes", "none") is None:
        choice = "encoded" if _asks_for_sizes(data) else "none"
        config = replace(config, conditioning=replace(conditioning, remaining_sizes=choice))
    sizes, graphs = data.schema.sizes(), data.graphs["train"]
    statistics = kept_statistics(graphs, sizes)
    if hasattr(config, "constraints") and config.constraints.edge_types == "observed":
        statistics = replace(statistics, edge_type_sets=edge_type_sets(graphs, sizes))
    return ModelSpec(name, sizes, statistics, asdict(config))


def _asks_for_sizes(data: GraphDataset) -> bool:
    names = {condition.name for condition in data.schema.numeric_conditions}
    return data.schema.kind != "flow" and names.issuperset(SIZE_CONDITIONS)


def predicts_out_degree(data: GraphDataset) -> bool:
    """Return whether numbers of children are drawn where nothing else is asked for."""
    return data.schema.kind == "flow"


_NUMBERED = re.compile(
    r"(?P<head>heads\.other_(readouts|embeddings)|.*conditions\.categories)"
    r"\.(?P<number>\d+)\.(?P<tail>.*)"
)


def axes_of(model: DAGModel, spec: ModelSpec) -> dict[str, WeightAxis]:
    """Return the axis of each parameter whose rows are codes of the data, by its name.

    Of a registered model nothing is known: its weights go over where names and shapes agree.
    """
    if isinstance(model, FastLayerDAG):
        return _fast(model, spec.sizes)
    return _reference(model, spec) if isinstance(model, ReferenceLayerDAG) else {}


def source_parameter_name(name: str, here: GraphSchema, there: GraphSchema) -> str | None:
    """Return the old model's name of a parameter, None if it can have none.

    The fast model has a readout and an embedding for each attribute after the kind, the reference
    model an embedding for each categorical condition, numbered by the order of the schema.

    Args:
        name: Of the parameter in the new model.
        here: The new schema.
        there: The old schema.
    """
    found = _NUMBERED.fullmatch(name)
    if not found:
        return name
    head, number, tail = found["head"], int(found["number"]), found["tail"]
    if "categories" in head:
        new, old = ([c.name for c in s.category_conditions] for s in (here, there))
    else:
        new, old = ([a.name for a in s.attributes[1:]] for s in (here, there))
    return f"{head}.{old.index(new[number])}.{tail}" if new[number] in old else None


def _fast(model: FastLayerDAG, sizes: GraphSizes) -> dict[str, WeightAxis]:
    heads = model.heads
    size, in_degree = _bins("layer size", heads.size), _bins("in-degree", heads.in_degree)
    tokens = model.tokens.embedding.weight.shape[0] - sum(n + 1 for n in sizes.attributes)
    token_codes = [AttributeCodes(i, start_token=True) for i in range(len(sizes.attributes))]
    slots = [replace(size, name=name) for name in ("layer size", "index", "left")]
    axes = {
        "tokens.embedding.weight": WeightAxis((*token_codes, Fixed("counts", tokens)), summed=True),
        "heads.slot.weight": WeightAxis(tuple(slots)),
        "heads.kind_embedding.weight": WeightAxis((AttributeCodes(0),)),
        "heads.degree_embedding.weight": WeightAxis((in_degree,)),
        "heads.open_embedding.weight": WeightAxis((in_degree,)),
        **_readout("heads.size_readout", size),
        **_readout("heads.kind_readout", AttributeCodes(0)),
        **_readout("heads.degree_readout", in_degree),
        **_readout("heads.type_readout", EdgeTypes()),
    }
    for i in range(len(heads.other_embeddings)):
        axes[f"heads.other_embeddings.{i}.weight"] = WeightAxis((AttributeCodes(i + 1),))
    for i in range(len(heads.other_readouts)):
        axes |= _readout(f"heads.other_readouts.{i}", AttributeCodes(i + 1))
    if heads.out_degree is not None:
        axes |= _readout("heads.plan_readout", _bins("out-degree", heads.out_degree))
    return axes | _fast_conditions(model, sizes) | _posterior(model, sizes)


def _fast_conditions(model: FastLayerDAG, sizes: GraphSizes) -> dict[str, WeightAxis]:
    features = radial(model.conditions.center_F)
    numbers = [NumericFeatures(i, features) for i in range(sizes.numeric_conditions)]
    codes = [CategoryCodes(i, unknown=True) for i in range(len(sizes.category_conditions))]
    axes = {}
    for stage in ("", "stage_"):
        if numbers:
            axes[f"conditions.{stage}lift.weight"] = WeightAxis(tuple(numbers), dim=1)
        if codes:
            axes[f"conditions.{stage}categories.weight"] = WeightAxis(tuple(codes), summed=True)
    return axes


def _posterior(model: FastLayerDAG, sizes: GraphSizes) -> dict[str, WeightAxis]:
    if model.posterior is None:
        return {}
    codes = [AttributeCodes(i) for i in range(len(sizes.attributes))]
    counts = model.posterior.codes.weight.shape[0] - sum(sizes.attributes)
    answers: list[Segment] = [NumericMean(i) for i in range(sizes.numeric_conditions)]
    answers += [NumericSpread(i) for i in range(sizes.numeric_conditions)]
    answers += [CategoryCodes(i, unknown=False) for i in range(len(sizes.category_conditions))]
    return {
        "posterior.codes.weight": WeightAxis((*codes, Fixed("counts", counts)), summed=True),
        "posterior.answer.2.weight": WeightAxis(tuple(answers)),
        "posterior.answer.2.bias": WeightAxis(tuple(answers)),
        **_edge_kinds(model.posterior.named_modules(prefix="posterior"), ("",)),
    }


def _reference(model: ReferenceLayerDAG, spec: ModelSpec) -> dict[str, WeightAxis]:
    sizes = spec.sizes
    degrees = InDegreeRows(tuple(model.degrees.value_K.tolist()))
    columns = (*(AttributeCodes(i) for i in range(len(sizes.attributes))), degrees)
    widest = max(*sizes.attributes, len(degrees.values))
    counts = (*sizes.attributes, len(degrees.values))
    padded: list[Segment] = []
    for number, (column, count) in enumerate(zip(columns, counts, strict=True)):
        padded += [column, Fixed(f"padding {number}", widest - count)]
    layers = CountBins("layer size", tuple(range(model.layer_size.largest + 2)))
    states = (Fixed("no edge", 1), EdgeTypes())
    axes = {
        "layer_size.head.2.weight": WeightAxis((layers,)),
        "layer_size.head.2.bias": WeightAxis((layers,)),
        "node.noisy.table": WeightAxis(columns, summed=True),
        "node.head.weight": WeightAxis(tuple(padded)),
        "node.head.bias": WeightAxis(tuple(padded)),
        "edge.states.weight": WeightAxis(states),
        "edge.head.weight": WeightAxis(states),
        "edge.head.bias": WeightAxis(states),
    }
    encoders = {"layer_size.encoder.rows": ("",), "node.encoder.rows": ("",)}
    for prefix, roles in {**encoders, "edge.encoder": ("known", "noisy")}.items():
        axes[f"{prefix}.codes.table"] = WeightAxis(columns, summed=True)
        axes |= _edge_kinds(model.get_submodule(prefix).named_modules(prefix=prefix), roles)
        axes |= _reference_conditions(f"{prefix}.conditions", sizes)
    return axes


def _reference_conditions(prefix: str, sizes: GraphSizes) -> dict[str, WeightAxis]:
    """Return the axes of one encoder of conditions; its first weight has values, then ones."""
    axes = {}
    count = sizes.numeric_conditions
    if count:
        numbers = tuple(NumericFeatures(i, value_and_one) for i in range(count))
        positions = tuple(index for i in range(count) for index in (i, count + i))
        axes[f"{prefix}.numeric.0.weight"] = WeightAxis(numbers, dim=1, positions=positions)
    for i in range(len(sizes.category_conditions)):
        axes[f"{prefix}.categories.{i}.weight"] = WeightAxis((CategoryCodes(i, unknown=True),))
    return axes


def _edge_kinds(
    modules: Iterable[tuple[str, nn.Module]], roles: tuple[str, ...]
) -> Mapping[str, WeightAxis]:
    """Return the axes of the embeddings of edge types, where there are several."""
    axis = WeightAxis(tuple(EdgeTypes(role) for role in roles))
    return {
        f"{name}.weight": axis
        for name, module in modules
        if name.endswith(".kinds") and isinstance(module, nn.Embedding)
    }


def _readout(name: str, segment: Segment) -> dict[str, WeightAxis]:
    return {f"{name}.project.{part}": WeightAxis((segment,)) for part in ("weight", "bias")}


def _bins(name: str, counter: CountEncoder) -> CountBins:
    return CountBins(name, tuple(counter.lows_K1.tolist()))


# What the words of an attribute are called.
_PLURALS = {"op": "operators"}


def report(here: GraphSchema, there: GraphSchema) -> tuple[str, ...]:
    """Return a phrase for each group of words, bins or conditions of the new schema.

    Args:
        here: The new schema.
        there: The old schema.
    """
    phrases, fresh, exact, bins = [], [], [], []
    for column, attribute in enumerate(here.attributes):
        source = attribute_source(column, here, there)
        if source is None:
            fresh.append(attribute.name)
        elif not isinstance(attribute, CategoryAttribute):
            bins.append(attribute.name)
        elif set(source.how) == {BY_NAME} and column:
            exact.append(attribute.name)
        else:
            phrases.append(_counted(_PLURALS.get(attribute.name, attribute.name), source.how))
    edges = by_same_name(here.edge_types, there.edge_types).how
    numbers = [c.name for c in here.numeric_conditions]
    known = [n for i, n in enumerate(numbers) if numeric_pair(i, here, there)]
    fresh += [name for name in numbers if name not in known]
    for condition in here.category_conditions:
        source = category_source(condition, there)
        if source is None:
            fresh.append(condition.name)
        elif set(source.how) == {BY_NAME}:
            exact.append(condition.name)
        else:
            phrases.append(_counted(condition.name, source.how))
    phrases.append(_counted("edge types", edges))
    phrases += _listed("all words by name: ", exact)
    phrases += _listed("by value: ", [*bins, *known])
    return (*phrases, *_listed("fresh: ", fresh))


def _counted(what: str, how: Sequence[str]) -> str:
    """Return "operators 41 of 44 by name, 3 from their kind"."""
    counts = Counter(how)
    named = counts.pop(BY_NAME, 0)
    rest = [f", {count} {way}" for way, count in counts.items()]
    return f"{what} {named} of {len(how)} by name{''.join(rest)}"


def _listed(title: str, names: Iterable[str]) -> list[str]:
    joined = ", ".join(names)
    return [title + joined] if joined else []


# Settings of a model that may differ from the old one's: no weight means another thing by them.
TUNABLE = frozenset(
    {
        *("encoder.dropout", "encoder.token_dropout", "conditioning.dropout", "posterior.dropout"),
        *("constraints.out_degree", "constraints.neighbors", "budget", "sampling_precision"),
        "conditioning.remaining_sizes",
    }
)
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class SourceModel:
    """A trained model and what its codes mean.

    Attributes:
        model: With its weights.
        spec: The same as plain data.
        schema: Of the data it was trained on.
    """

    model: DAGModel
    spec: ModelSpec
    schema: GraphSchema


@dataclass(frozen=True, eq=False)
class TransferredWeights:
    """Initial weights of a new model.

    Attributes:
        weights: Its whole state dict.
        report: What was taken from where, a phrase for each group of words, bins or conditions.
    """

    weights: Mapping[str, Tensor]
    report: tuple[str, ...]


def spec_from(
    old: SourceModel,
    data: GraphDataset,
    name: str | None = None,
    given: Mapping[str, Any] = _NOTHING,
) -> ModelSpec:
    """Return the old model with the sizes and statistics of another data set.

    Args:
        old: The trained model.
        data: The new data set.
        name: The model that the user asks for; None leaves it to the old one.
        given: The model's settings that the user asks for, in groups.

    Raises:
        ConfigError: If what is asked for contradicts the old model.
    """
    if name not in (None, old.spec.name):
        raise ConfigError(
            f"A model '{name}' cannot start from the weights of a model '{old.spec.name}'; leave "
            f"model={name} out, or start from a checkpoint of such a model."
        )
    kept = flattened(_settings(old.spec))
    wanted = flattened(_plain(given))
    for key, value in wanted.items():
        if key in kept and key not in TUNABLE and value not in (None, kept[key]):
            raise ConfigError(
                f"model.{key}={value} contradicts the weights to start from, which are of a model "
                f"with {key}={kept[key]}; leave it out, or train without init."
            )
    chosen = {key: value for key, value in wanted.items() if value is not None}
    return spec_for(data, old.spec.name, grouped({**kept, **chosen}))


def carry_over(
    old: SourceModel, spec: ModelSpec, schema: GraphSchema, seed: int = 0
) -> TransferredWeights:
    """Return the weights that a new model starts from.

    A weight that is the same for all data is copied. Of a weight with a row for each code, a row
    is copied from the row of the same word, a new word's is the mean over the known words of its
    kind, and a bin's is the mean over the old bins that hold its values
    (docs/how-to/few-graphs.md). What has no counterpart keeps its fresh initialization.

    Args:
        old: The trained model.
        spec: The new model, as ``spec_from`` returned it.
        schema: Of the new data set.
        seed: Of the fresh initialization.
    """
    new = build_model(spec, seed)
    axes, old_axes = axes_of(new, spec), axes_of(old.model, old.spec)
    old_weights = old.model.state_dict()
    weights = {}
    for name, fresh in new.state_dict().items():
        source = source_parameter_name(name, schema, old.schema)
        if source not in old_weights:
            weights[name] = fresh
        elif name in axes and source in old_axes:
            rows = axes[name].source(old_axes[source], schema, old.schema)
            weights[name] = _mixed(fresh, old_weights[source], rows, (axes[name], old_axes[source]))
        elif old_weights[source].shape == fresh.shape:
            weights[name] = old_weights[source].detach().cpu().clone()
        else:
            weights[name] = fresh
    return TransferredWeights(weights, report(schema, old.schema))


def _mixed(
    fresh: Tensor, old: Tensor, rows: RowSource, axes: tuple[WeightAxis, WeightAxis]
) -> Tensor:
    """Return a weight with its rows mixed from old ones; rows without a source stay fresh."""
    new_KF, old_JF = (
        _rows(weight.detach().cpu().double(), axis)
        for weight, axis in zip((fresh, old), axes, strict=True)
    )
    mixed_KF = torch.from_numpy(rows.matrix_KJ) @ old_JF
    if fresh.ndim == 1:
        mixed_KF = mixed_KF + torch.from_numpy(rows.offset_K)[:, None]
    known_K1 = torch.from_numpy(rows.matrix_KJ.any(axis=1))[:, None]
    mixed_KF = torch.where(known_K1, mixed_KF, new_KF)
    return _weight(mixed_KF, fresh, axes[0])


def _rows(weight: Tensor, axis: WeightAxis) -> Tensor:
    rows = weight.movedim(axis.dim, 0).reshape(weight.shape[axis.dim], -1)
    return rows[list(axis.positions)] if axis.positions else rows


def _weight(rows_KF: Tensor, like: Tensor, axis: WeightAxis) -> Tensor:
    """Return what ``_rows`` took apart, in the shape and precision of ``like``."""
    if axis.positions:
        rows_KF = rows_KF[np.argsort(axis.positions)]
    shape = like.movedim(axis.dim, 0).shape
    return rows_KF.reshape(shape).movedim(0, axis.dim).to(like.dtype).contiguous()


def _settings(spec: ModelSpec) -> dict[str, Any]:
    config = spec.config
    if isinstance(config, FastConfig):
        plans = config.predict_out_degree is not False
        config = replace(config, predict_out_degree=plans)
    return _plain(asdict(config))


def _plain(settings: Any) -> Any:
    if is_dataclass(settings) and not isinstance(settings, type):
        settings = asdict(settings)
    if isinstance(settings, Mapping):
        return {name: _plain(value) for name, value in settings.items()}
    return list(settings) if isinstance(settings, tuple) else settings


PRETRAINED = "pretrained"


@dataclass(frozen=True, eq=False)
class WarmStart:
    """A model for a data set, and the weights that it starts from.

    Attributes:
        spec: The model.
        start: Its initial weights, and where they come from.
        report: What was taken from where, a phrase for each group of words, bins or conditions.
    """

    spec: ModelSpec
    start: InitialWeights
    report: tuple[str, ...]

    def __str__(self) -> str:
        """Return one sentence for the user."""
        origin = self.start.origin
        return f"starts from {origin.name} (step {origin.step:,}): {'; '.join(self.report)}"


def warm_start(
    init: str | Path,
    data: GraphDataset,
    model: str | None = None,
    options: Mapping[str, Any] = _NOTHING,
    *,
    seed: int = 0,
) -> WarmStart:
    """Carry the weights of a checkpoint over to a data set with other words, bins and conditions.

    Args:
        init: Folder of a checkpoint or of a run (then its best one); "pretrained" is the checkpoint
            inside the package.
        data: What will be trained on.
        model: The model that is asked for; None takes the checkpoint's.
        options: The model's settings that are asked for; the checkpoint's are taken for the rest.
        seed: Of the weights that nothing can be taken for.

    Raises:
        CheckpointError: If the checkpoint cannot be read.
        ConfigError: If what is asked for contradicts the checkpoint's model.
    """
    checkpoint, origin = checkpoint_and_origin(init)
    old = SourceModel(checkpoint.model, checkpoint.spec, checkpoint_schema(checkpoint))
    spec = spec_from(old, data, model, options)
    carried = carry_over(old, spec, data.schema, seed)
    start = WarmStart(spec, InitialWeights(carried.weights, origin), carried.report)
    logging.getLogger("layerdag").info("%s", start)
    return start


def checkpoint_and_origin(init: str | Path) -> tuple[LoadedCheckpoint, Origin]:
    """Return the checkpoint that ``init`` names, and what is recorded of it.

    Raises:
        CheckpointError: If it cannot be read.
    """
    folder = checkpoint_folder(init)
    checkpoint = load_checkpoint(folder)
    origin = Origin(
        name=PRETRAINED if str(init) == PRETRAINED else _name_of(folder),
        fingerprint=checkpoint_fingerprint(folder),
        step=checkpoint.meta.step,
        data_fingerprint=checkpoint.meta.data_fingerprint,
    )
    return checkpoint, origin


def checkpoint_folder(init: str | Path) -> Path:
    """Return the folder of a checkpoint, of a run that of its best one."""
    if str(init) == PRETRAINED:
        return pretrained_checkpoint()
    folder = Path(init)
    inside = not (folder / META).is_file() and (folder / BEST / META).is_file()
    return folder / BEST if inside else folder


def _name_of(folder: Path) -> str:
    folder = folder.resolve()
    return folder.parent.name if folder.name in (BEST, LAST) else folder.name
