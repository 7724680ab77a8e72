"""Tuning with differential privacy, and its audit."""
