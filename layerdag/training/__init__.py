"""One training loop for every model, and the checkpoints it writes."""
