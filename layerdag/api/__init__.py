"""The calls that users make first, and the demo."""

from layerdag.api.demo import DemoSettings, report
from layerdag.api.generator import private_run, require_private

__all__ = [
    "DemoSettings",
    "private_run",
    "report",
    "require_private",
]
