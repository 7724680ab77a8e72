from ._fix import Fix as Fix, FixedWorkload as FixedWorkload
from ._workload import FIXABLE as FIXABLE, fix_workload as fix_workload
