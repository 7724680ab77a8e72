"""Models that predict the performance of a job from its graph, and what synthetic graphs teach."""
