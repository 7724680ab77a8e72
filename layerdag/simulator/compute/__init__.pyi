from ._base import (
    SKIPPED as SKIPPED,
    ComputeModel as ComputeModel,
    MeasuredCompute as MeasuredCompute,
    ReferenceCompute as ReferenceCompute,
    recorded_ns as recorded_ns,
)
from ._choice import compute_model as compute_model
