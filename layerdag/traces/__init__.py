"""Execution traces as columns of numpy arrays."""
