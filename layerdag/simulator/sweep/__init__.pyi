from ._journal import Journal as Journal
from ._ray_cluster import run_on_ray as run_on_ray
from ._run import (
    SweepRow as SweepRow,
    in_processes as in_processes,
    read_sweep as read_sweep,
    run_sweep as run_sweep,
)
from ._tables import (
    draw as draw,
    pareto_front as pareto_front,
    speed_ups as speed_ups,
    write_rows as write_rows,
)
