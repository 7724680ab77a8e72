"""Attributed graphs, their topology and repeated blocks, in numpy."""
