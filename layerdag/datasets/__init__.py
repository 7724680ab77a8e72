"""DAGs with their schema, split by run."""

from layerdag.datasets.latent_preferential import is_valid

__all__ = ["is_valid"]
