"""Judges graphs and traces: rules, similarity, copies, usefulness."""
