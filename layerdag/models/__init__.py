"""Generative models of DAGs; they see sizes, never vocabularies."""

import importlib

from layerdag.models.base import (
    NO_PREFIX,
    Conditions,
    DAGModel,
    JointCodeMasks,
    LossTerm,
    ModelSpec,
    SampleRequest,
    SampleResult,
    build_model,
    build_without_weights,
    model_config,
    require_request,
)
from layerdag.models.config import FastConfig
from layerdag.models.draws import (
    SampleStreams,
    assemble_dags,
    bin_positions,
    choose_with_one_of,
    guided,
    gumbel,
    sample_categorical,
    sample_from_logits,
    slot_uniforms,
)
from layerdag.models.layers import (
    MLP,
    CountCode,
    CountEncoder,
    MessagePassingLayer,
    SegmentAttention,
    Segments,
    SumEmbedding,
    dropout,
    gather_rows,
    row_dropout,
    segment_log_sum_exp,
    segment_max,
    segment_mean,
    segment_pointers,
    segment_ranges,
    sinusoids,
    to_float32,
)
from layerdag.models.posterior import GapFilling, Posterior, resample

__all__ = [
    "MLP",
    "NO_PREFIX",
    "Conditions",
    "CountCode",
    "CountEncoder",
    "DAGModel",
    "FastConfig",
    "GapFilling",
    "JointCodeMasks",
    "LossTerm",
    "MessagePassingLayer",
    "ModelSpec",
    "Posterior",
    "SampleRequest",
    "SampleResult",
    "SampleStreams",
    "SegmentAttention",
    "Segments",
    "SumEmbedding",
    "assemble_dags",
    "bin_positions",
    "build_model",
    "build_without_weights",
    "choose_with_one_of",
    "dropout",
    "gather_rows",
    "guided",
    "gumbel",
    "model_config",
    "require_request",
    "resample",
    "row_dropout",
    "sample_categorical",
    "sample_from_logits",
    "segment_log_sum_exp",
    "segment_max",
    "segment_mean",
    "segment_pointers",
    "segment_ranges",
    "sinusoids",
    "slot_uniforms",
    "to_float32",
]

_NETWORKS = {
    "FastLayerDAG": "layerdag.models.fast.model",
    "ReferenceLayerDAG": "layerdag.models.reference.model",
}


def __getattr__(name: str) -> object:
    """Return one of the two networks, whose folders lie below this one."""
    if name in _NETWORKS:
        return getattr(importlib.import_module(_NETWORKS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
