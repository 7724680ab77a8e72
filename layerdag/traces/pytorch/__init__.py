"""Traces and profiles of PyTorch as Chakra traces."""

from layerdag.traces.pytorch.importer import import_pytorch

__all__ = ["import_pytorch"]
