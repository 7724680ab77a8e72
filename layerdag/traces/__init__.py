"""Execution traces: formats, columns, workloads, checks. numpy only, no torch."""
