"""From private traces to a package that may be published."""

from layerdag.publication.pipeline import run_release
from layerdag.publication.settings import ReleaseSettings

__all__ = [
    "ReleaseSettings",
    "run_release",
]
