"""Serving engines: requests in, batches and caches, latencies out."""

from layerdag.serving.requests import Arrivals, Requests

__all__ = [
    "Arrivals",
    "Requests",
]
