"""One step of a model by its name, shape or ``config.json``."""

from pathlib import Path
from typing import Any

from layerdag.traces.trace import Workload
from layerdag.workloads.dlrm import RECOMMENDERS, RecommenderJob, RecommenderShape, recommender_job
from layerdag.workloads.transformer.disaggregated import DisaggregatedJob, disaggregated_job
from layerdag.workloads.transformer.job import SymbolicJob, transformer_job
from layerdag.workloads.transformer.shapes import ModelShape


def job(
    name: str | Path | ModelShape | RecommenderShape, **settings: Any
) -> SymbolicJob | DisaggregatedJob | RecommenderJob:
    """Return one step of a model, with its figures; see ``workload``."""
    if isinstance(name, RecommenderShape) or name in RECOMMENDERS:
        return recommender_job(name, **settings)
    if settings.get("phase") == "disaggregated":
        return disaggregated_job(name, **settings)
    return transformer_job(name, **settings)


def workload(name: str | Path | ModelShape | RecommenderShape, **settings: Any) -> Workload:
    """Return the traces of one step of a model on all its ranks, without a device or weights.

    Args:
        name: A model of ``layerdag.workloads.transformer.shapes.PRESETS`` or of
            ``layerdag.workloads.dlrm.RECOMMENDERS``, a ``config.json`` of Hugging Face,
            or a shape.
        **settings: Fields of ``Plan`` and ``Step``, such as ``tensor=8, data=4, batch=64``. Without
            ``batch`` each micro-batch has one sequence; images have a ``sequence`` of their own.
            With ``phase="disaggregated"`` degrees are those of the ranks that prefill or decode,
            such as ``prefill_tensor=4, decode_tensor=2, decode_data=2``.

    Returns:
        What ``layerdag.simulate`` takes and ``layerdag.write_workload`` writes. The trace of a rank
        is made when it is asked for.

    Raises:
        UsageError: If there is no such model or setting, or numbers do not fit together.
    """
    return job(name, **settings).workload()
