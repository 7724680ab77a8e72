"""Traces of PyTorch code, of a running step or without a device."""
