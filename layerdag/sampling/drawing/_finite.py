"""Sampling with a clear error when weights overflow."""

import torch

from layerdag.datasets import encode_batch
from layerdag.datasets.schema import GraphSchema
from layerdag.errors import CheckpointError
from layerdag.graph import DAG
from layerdag.models import DAGModel, SampleRequest, SampleResult


def finite_sample(model: DAGModel, schema: GraphSchema, request: SampleRequest) -> SampleResult:
    """Return what ``model.sample`` returns.

    Raises:
        CheckpointError: If sampling fails and the likelihood of a small graph is not finite.
    """
    try:
        return model.sample(request)
    except (ValueError, IndexError, RuntimeError) as error:
        dag = DAG.build(
            torch.zeros((1, len(schema.attributes)), dtype=torch.int64),
            torch.zeros((2, 0), dtype=torch.int64),
        )
        device = request.numeric_BC.device
        with torch.no_grad():
            terms = model.losses(encode_batch(schema, [dag]).to(device), torch.Generator(device))
        if all(bool(term.total.isfinite()) for term in terms.values()):
            raise
        raise CheckpointError(
            "With the weights of this checkpoint no probability is finite; use an earlier one."
        ) from error
