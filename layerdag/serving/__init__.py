"""Serving engines: requests in, batches and caches, latencies out."""

from layerdag.serving.arrivals import Arrivals
from layerdag.serving.iteration_work import InstancePlan
from layerdag.serving.requests import Requests
from layerdag.serving.result import ServingResult

__all__ = ["Arrivals", "InstancePlan", "Requests", "ServingResult"]
