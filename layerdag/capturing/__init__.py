"""Traces of PyTorch code, of a running step or without a device."""

from layerdag.capturing.running import capture, collect_step
from layerdag.capturing.step import CapturedStep, capture_model, capture_step, load_program

__all__ = [
    "CapturedStep",
    "capture",
    "capture_model",
    "capture_step",
    "collect_step",
    "load_program",
]
