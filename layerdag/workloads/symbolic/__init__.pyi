from ._disaggregated import (
    DisaggregatedJob as DisaggregatedJob,
    disaggregated_job as disaggregated_job,
    workload as workload,
)
from ._job import (
    SymbolicJob as SymbolicJob,
    figures_of as figures_of,
    job as job,
)
from .costs import ADAM as ADAM, ELEMENTWISE as ELEMENTWISE, RankMemory as RankMemory
from .passes import Nodes as Nodes, Tape as Tape
from .plans import PRECISIONS as PRECISIONS, Plan as Plan, Precision as Precision, Step as Step
from .shapes import (
    PRESETS as PRESETS,
    Image as Image,
    Latent as Latent,
    ModelShape as ModelShape,
    model as model,
)
