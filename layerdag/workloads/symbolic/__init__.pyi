from ._job import SymbolicJob as SymbolicJob, job as job, workload as workload
from ._memory import RankMemory as RankMemory
from ._models import PRESETS as PRESETS, model as model
from ._plan import PRECISIONS as PRECISIONS, Plan as Plan, Precision as Precision, Step as Step
from ._shape import Image as Image, ModelShape as ModelShape
