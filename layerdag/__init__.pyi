from ._version import __version__ as __version__
from .datasets import GraphDataset as GraphDataset
from .datasets.sources import load_corpus as load_corpus
from .graph import DAG as DAG
from .sampling import (
    GenerationSettings as GenerationSettings,
    as_workload as as_workload,
    generate as generate,
    write_samples as write_samples,
)
from .simulator import Cluster as Cluster, simulate as simulate
from .traces import (
    Trace as Trace,
    Workload as Workload,
    read_workload as read_workload,
    write_workload as write_workload,
)
from .traces.chakra import read_trace as read_trace, write_trace as write_trace
from .traces.pytorch import capture as capture
from .training import load_checkpoint as load_checkpoint, train as train
