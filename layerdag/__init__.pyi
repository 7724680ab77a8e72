from ._version import __version__ as __version__
from .api import (
    ShadowSettings as ShadowSettings,
    audit as audit,
    compare as compare,
    diff as diff,
    fix as fix,
    read as read,
    release as release,
    train as train,
    validate as validate,
    workload as workload,
    write as write,
)
from .datasets import GraphDataset as GraphDataset, load_dataset as load_dataset
from .datasets.samples import iter_samples as iter_samples
from .datasets.sources import load_corpus as load_corpus
from .graph import DAG as DAG
from .sampling import (
    GenerationSettings as GenerationSettings,
    PartSettings as PartSettings,
    SampleBatches as SampleBatches,
    as_workload as as_workload,
    generate as generate,
    sample as sample,
    write_parts as write_parts,
    write_samples as write_samples,
)
from .simulator import Cluster as Cluster, simulate as simulate
from .surrogates import Surrogate as Surrogate
from .traces import (
    Trace as Trace,
    Workload as Workload,
    read_workload as read_workload,
    write_workload as write_workload,
)
from .traces.chakra import read_trace as read_trace, write_trace as write_trace
from .traces.pytorch import capture as capture
from .training import TrainSettings as TrainSettings, load_checkpoint as load_checkpoint
from .training.private import Privacy as Privacy
from .workloads.capture import capture_model as capture_model, capture_step as capture_step
from .workloads.exploration import explore as explore
from .workloads.scaling import scale as scale
