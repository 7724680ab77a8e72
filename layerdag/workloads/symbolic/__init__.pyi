from ._costs import ADAM as ADAM, ELEMENTWISE as ELEMENTWISE
from ._job import (
    SymbolicJob as SymbolicJob,
    figures_of as figures_of,
    job as job,
    workload as workload,
)
from ._memory import RankMemory as RankMemory
from ._models import PRESETS as PRESETS, model as model
from ._plan import PRECISIONS as PRECISIONS, Plan as Plan, Precision as Precision, Step as Step
from ._shape import Image as Image, ModelShape as ModelShape
from ._tape import Nodes as Nodes, Tape as Tape
