"""Models that predict performance from a graph."""
