from ._critical_path import critical_path as critical_path
from ._matching import Communication as Communication, match_communication as match_communication
from ._program_order import (
    WORLD as WORLD,
    WORLD_NAMES as WORLD_NAMES,
    CommEvents as CommEvents,
    gather_communication as gather_communication,
    group_names as group_names,
    program_order as program_order,
)
from ._replay import replay as replay
from ._summary import (
    GroupSummary as GroupSummary,
    RankSummary as RankSummary,
    WorkloadSummary as WorkloadSummary,
    collective_name as collective_name,
    summarize as summarize,
)
