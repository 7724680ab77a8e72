"""Samples on disk: written by ``layerdag sample``, read by everything else."""
