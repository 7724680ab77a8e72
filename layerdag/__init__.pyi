from .api.functions import (
    compare as compare,
    fix as fix,
    validate as validate,
    write as write,
)
from .api.generator import (
    Generator as Generator,
    audit as audit,
    generate as generate,
    load_checkpoint as load_checkpoint,
    sample as sample,
    train as train,
    write_parts as write_parts,
    write_samples as write_samples,
)
from .capturing.running import capture as capture
from .capturing.step import capture_model as capture_model, capture_step as capture_step
from .codec.formats import read as read
from .dag.dag import DAG as DAG
from .datasets.dataset import GraphDataset as GraphDataset
from .datasets.loading import (
    load_dataset as load_dataset,
    register_loader as register_loader,
)
from .differences.comparison import diff as diff
from .dp.settings import Privacy as Privacy
from .evaluation.metrics.base import (
    graph_metric as graph_metric,
    register_metric as register_metric,
)
from .evaluation.side_by_side import register_generator as register_generator
from .evaluation.similarity import QualityReport as QualityReport
from .evaluation.validity import VUN as VUN, novelty as novelty, vun as vun
from .models.fast.encoder import register_encoder as register_encoder
from .models.spec import register_model as register_model
from .privacy.shadows import ShadowSettings as ShadowSettings
from .programs.forward_program import Program as Program
from .programs.sources import program as program
from .publication.pipeline import release as release
from .samples.reader import iter_samples as iter_samples
from .sampling.generated import GeneratedGraph as GeneratedGraph, as_workload as as_workload
from .sampling.parts import (
    PartSettings as PartSettings,
    SampleBatches as SampleBatches,
)
from .sampling.settings import GenerationSettings as GenerationSettings
from .serving.simulation import simulate_serving as simulate_serving
from .simulator.cluster import Cluster as Cluster
from .simulator.run import SimulationResult as SimulationResult, simulate as simulate
from .surrogates.surrogate import Surrogate as Surrogate
from .traces.chakra.files import read_trace as read_trace, write_trace as write_trace
from .traces.chakra.workload import read_workload as read_workload, write_workload as write_workload
from .traces.trace import Trace as Trace, Workload as Workload
from .training.settings import TrainSettings as TrainSettings
from .version import __version__ as __version__
from .workloads.accuracy import accuracy as accuracy
from .workloads.by_name import workload as workload
from .workloads.exploration import explore as explore
