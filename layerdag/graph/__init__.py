"""DAGs as tensors: layering, batches, hashing, small random graphs. Knows no trace and no model."""
