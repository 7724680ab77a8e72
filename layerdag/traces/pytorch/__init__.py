"""Traces and profiles of PyTorch as Chakra traces."""

from layerdag.traces.pytorch.comm_replay import write_replay
from layerdag.traces.pytorch.host_dataflow import HostOperations, Operation, Ranks, number_groups
from layerdag.traces.pytorch.importer import (
    ImportResult,
    import_operations,
    import_pytorch,
    read_host,
)
from layerdag.traces.pytorch.kineto import Timings, read_timings
from layerdag.traces.pytorch.operators import (
    COMMUNICATION_OPERATORS,
    DTYPES,
    UNKNOWN_DTYPE,
    OpRole,
    Signature,
    TensorView,
    signature,
)
from layerdag.traces.pytorch.ranks import (
    ImportedJob,
    PyTorchFile,
    RankFiles,
    find_rank_files,
    import_ranks,
    import_single_rank,
    pytorch_format,
    pytorch_kind,
    refuse_missing_ranks,
    replicate_rank,
)

__all__ = [
    "COMMUNICATION_OPERATORS",
    "DTYPES",
    "UNKNOWN_DTYPE",
    "HostOperations",
    "ImportResult",
    "ImportedJob",
    "OpRole",
    "Operation",
    "PyTorchFile",
    "RankFiles",
    "Ranks",
    "Signature",
    "TensorView",
    "Timings",
    "find_rank_files",
    "import_operations",
    "import_pytorch",
    "import_ranks",
    "import_single_rank",
    "number_groups",
    "pytorch_format",
    "pytorch_kind",
    "read_host",
    "read_timings",
    "refuse_missing_ranks",
    "replicate_rank",
    "signature",
    "write_replay",
]
