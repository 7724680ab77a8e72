from ._grid import PEERS as PEERS, ROLES as ROLES, Grid as Grid, stage_traces as stage_traces
from ._plan import (
    PRECISIONS as PRECISIONS,
    Plan as Plan,
    Precision as Precision,
    Recompute as Recompute,
    Step as Step,
    check_fit as check_fit,
)
from ._schedule import (
    Task as Task,
    layers_held as layers_held,
    layers_of_chunks as layers_of_chunks,
    layers_of_stage as layers_of_stage,
    stage_tasks as stage_tasks,
)
