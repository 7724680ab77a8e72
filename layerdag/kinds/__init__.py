"""Kinds of graphs: jobs, forward programs and flow graphs, each with all that is its own."""
