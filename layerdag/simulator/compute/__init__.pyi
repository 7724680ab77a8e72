from ._array_compute import SystolicCompute as SystolicCompute
from ._base import (
    SKIPPED as SKIPPED,
    ComputeModel as ComputeModel,
    MeasuredCompute as MeasuredCompute,
    PredictedCompute as PredictedCompute,
    ReferenceCompute as ReferenceCompute,
    recorded_ns as recorded_ns,
)
from ._choice import compute_model as compute_model, model_files as model_files
from ._cycles_to_time import (
    BatchReduction as BatchReduction,
    Clock as Clock,
    CyclesToTime as CyclesToTime,
    RangeMap as RangeMap,
    RegionMap as RegionMap,
    RoofMap as RoofMap,
    fit_roof as fit_roof,
)
from ._elementwise import ElementwiseLatency as ElementwiseLatency
from ._fitting import fit_log_latency as fit_log_latency
from ._grammar import CHOICES as CHOICES
from ._roofline import DEVICES as DEVICES, Device as Device, RooflineCompute as RooflineCompute
from ._systolic import (
    Dataflow as Dataflow,
    Gemm as Gemm,
    SystolicArray as SystolicArray,
    SystolicReport as SystolicReport,
)
from .learned import (
    OperatorLatency as OperatorLatency,
    OperatorTrees as OperatorTrees,
    measured_rows as measured_rows,
)
