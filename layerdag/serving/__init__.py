"""Serving engines: requests in, batches and caches, latencies out."""

from layerdag.serving.requests import Arrivals, Requests
from layerdag.serving.result import write_requests, write_serving_timeline

__all__ = ["Arrivals", "Requests", "write_requests", "write_serving_timeline"]
