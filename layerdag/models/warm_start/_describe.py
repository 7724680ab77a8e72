"""Which weights of a model depend on the data's words, bins and conditions, and how.

Every other weight has the same shape and meaning for any data set.

Shape letters: F features, K codes, 1 one more than that.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from torch import nn

from layerdag.datasets.schema import GraphSchema
from layerdag.graph import GraphSizes
from layerdag.models import DAGModel, ModelSpec
from layerdag.models.autoregressive import FastLayerDAG
from layerdag.models.diffusion import ReferenceLayerDAG
from layerdag.models.layers import Counter
from layerdag.models.warm_start._axes import (
    AttributeCodes,
    Axis,
    CategoryCodes,
    CountBins,
    Degrees,
    EdgeTypes,
    Fixed,
    NumericFeatures,
    NumericMean,
    NumericSpread,
    Segment,
)
from layerdag.models.warm_start._numbers import radial, value_and_one

_NUMBERED = re.compile(
    r"(?P<head>heads\.other_(readouts|embeddings)|.*conditions\.categories)"
    r"\.(?P<number>\d+)\.(?P<tail>.*)"
)


def axes_of(model: DAGModel, spec: ModelSpec) -> dict[str, Axis]:
    """Return the axis of each parameter whose rows are codes of the data, by its name."""
    if isinstance(model, FastLayerDAG):
        return _fast(model, spec.sizes)
    assert isinstance(model, ReferenceLayerDAG)
    return _reference(model, spec)


def counterpart(name: str, here: GraphSchema, there: GraphSchema) -> str | None:
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


def _fast(model: FastLayerDAG, sizes: GraphSizes) -> dict[str, Axis]:
    """Return the axes of the fast model."""
    heads = model.heads
    size, in_degree = _bins("layer size", heads.size), _bins("in-degree", heads.in_degree)
    tokens = model.tokens.embedding.weight.shape[0] - sum(n + 1 for n in sizes.attributes)
    token_codes = [AttributeCodes(i, start_token=True) for i in range(len(sizes.attributes))]
    slots = [replace(size, name=name) for name in ("layer size", "index", "left")]
    axes = {
        "tokens.embedding.weight": Axis((*token_codes, Fixed("counts", tokens)), summed=True),
        "heads.slot.weight": Axis(tuple(slots)),
        "heads.kind_embedding.weight": Axis((AttributeCodes(0),)),
        "heads.degree_embedding.weight": Axis((in_degree,)),
        "heads.open_embedding.weight": Axis((in_degree,)),
        **_readout("heads.size_readout", size),
        **_readout("heads.kind_readout", AttributeCodes(0)),
        **_readout("heads.degree_readout", in_degree),
        **_readout("heads.type_readout", EdgeTypes()),
    }
    for i in range(len(heads.other_embeddings)):
        axes[f"heads.other_embeddings.{i}.weight"] = Axis((AttributeCodes(i + 1),))
    for i in range(len(heads.other_readouts)):
        axes |= _readout(f"heads.other_readouts.{i}", AttributeCodes(i + 1))
    if heads.out_degree is not None:
        axes |= _readout("heads.plan_readout", _bins("out-degree", heads.out_degree))
    return axes | _fast_conditions(model, sizes) | _posterior(model, sizes)


def _fast_conditions(model: FastLayerDAG, sizes: GraphSizes) -> dict[str, Axis]:
    """Return the axes of the encoder of conditions."""
    features = radial(model.conditions.center_F)
    numbers = [NumericFeatures(i, features) for i in range(sizes.numeric_conditions)]
    codes = [CategoryCodes(i, unknown=True) for i in range(len(sizes.category_conditions))]
    axes = {}
    for stage in ("", "stage_"):
        if numbers:
            axes[f"conditions.{stage}lift.weight"] = Axis(tuple(numbers), dim=1)
        if codes:
            axes[f"conditions.{stage}categories.weight"] = Axis(tuple(codes), summed=True)
    return axes


def _posterior(model: FastLayerDAG, sizes: GraphSizes) -> dict[str, Axis]:
    """Return the axes of the posterior."""
    if model.posterior is None:
        return {}
    codes = [AttributeCodes(i) for i in range(len(sizes.attributes))]
    counts = model.posterior.codes.weight.shape[0] - sum(sizes.attributes)
    answers: list[Segment] = [NumericMean(i) for i in range(sizes.numeric_conditions)]
    answers += [NumericSpread(i) for i in range(sizes.numeric_conditions)]
    answers += [CategoryCodes(i, unknown=False) for i in range(len(sizes.category_conditions))]
    return {
        "posterior.codes.weight": Axis((*codes, Fixed("counts", counts)), summed=True),
        "posterior.answer.2.weight": Axis(tuple(answers)),
        "posterior.answer.2.bias": Axis(tuple(answers)),
        **_edge_kinds(model.posterior.named_modules(prefix="posterior"), ("",)),
    }


def _reference(model: ReferenceLayerDAG, spec: ModelSpec) -> dict[str, Axis]:
    """Return the axes of the reference model."""
    sizes = spec.sizes
    degrees = Degrees(tuple(model.degrees.value_K.tolist()))
    columns = (*(AttributeCodes(i) for i in range(len(sizes.attributes))), degrees)
    widest = max(*sizes.attributes, len(degrees.values))
    counts = (*sizes.attributes, len(degrees.values))
    padded: list[Segment] = []
    for number, (column, count) in enumerate(zip(columns, counts, strict=True)):
        padded += [column, Fixed(f"padding {number}", widest - count)]
    layers = CountBins("layer size", tuple(range(model.layer_size.largest + 2)))
    states = (Fixed("no edge", 1), EdgeTypes())
    axes = {
        "layer_size.head.2.weight": Axis((layers,)),
        "layer_size.head.2.bias": Axis((layers,)),
        "node.noisy.table": Axis(columns, summed=True),
        "node.head.weight": Axis(tuple(padded)),
        "node.head.bias": Axis(tuple(padded)),
        "edge.states.weight": Axis(states),
        "edge.head.weight": Axis(states),
        "edge.head.bias": Axis(states),
    }
    encoders = {"layer_size.encoder.rows": ("",), "node.encoder.rows": ("",)}
    for prefix, roles in {**encoders, "edge.encoder": ("known", "noisy")}.items():
        axes[f"{prefix}.codes.table"] = Axis(columns, summed=True)
        axes |= _edge_kinds(model.get_submodule(prefix).named_modules(prefix=prefix), roles)
        axes |= _reference_conditions(f"{prefix}.conditions", sizes)
    return axes


def _reference_conditions(prefix: str, sizes: GraphSizes) -> dict[str, Axis]:
    """Return the axes of one encoder of conditions; its first weight has values, then ones."""
    axes = {}
    count = sizes.numeric_conditions
    if count:
        numbers = tuple(NumericFeatures(i, value_and_one) for i in range(count))
        positions = tuple(index for i in range(count) for index in (i, count + i))
        axes[f"{prefix}.numeric.0.weight"] = Axis(numbers, dim=1, positions=positions)
    for i in range(len(sizes.category_conditions)):
        axes[f"{prefix}.categories.{i}.weight"] = Axis((CategoryCodes(i, unknown=True),))
    return axes


def _edge_kinds(
    modules: Iterable[tuple[str, nn.Module]], roles: tuple[str, ...]
) -> Mapping[str, Axis]:
    """Return the axes of the embeddings of edge types, where there are several."""
    axis = Axis(tuple(EdgeTypes(role) for role in roles))
    return {
        f"{name}.weight": axis
        for name, module in modules
        if name.endswith(".kinds") and isinstance(module, nn.Embedding)
    }


def _readout(name: str, segment: Segment) -> dict[str, Axis]:
    """Return the axes of the logits of one decision."""
    return {f"{name}.project.{part}": Axis((segment,)) for part in ("weight", "bias")}


def _bins(name: str, counter: Counter) -> CountBins:
    """Return the bins of a counter as rows."""
    return CountBins(name, tuple(counter.lows_K1.tolist()))
