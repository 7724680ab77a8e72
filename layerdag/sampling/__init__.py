"""From a checkpoint to graphs, in memory and on disk."""
