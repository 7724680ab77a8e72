"""Generative models of DAGs; they see sizes, never vocabularies."""

import importlib

_NETWORKS = {
    "FastLayerDAG": "layerdag.models.fast.model",
    "ReferenceLayerDAG": "layerdag.models.reference.model",
}
"""Imported when they are first used, since they import this package."""


def __getattr__(name: str) -> object:
    if name in _NETWORKS:
        return getattr(importlib.import_module(_NETWORKS[name]), name)
    raise AttributeError(f"module 'layerdag.models' has no attribute {name!r}")
