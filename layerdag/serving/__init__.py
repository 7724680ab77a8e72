"""Serving engines: requests in, batches and caches, latencies out."""

from layerdag.serving.arrivals import Arrivals
from layerdag.serving.outputs import write_requests, write_serving_timeline
from layerdag.serving.requests import Requests

__all__ = ["Arrivals", "Requests", "write_requests", "write_serving_timeline"]
