from ._matching import Communication as Communication, match_communication as match_communication
from ._program_order import (
    WORLD_NAMES as WORLD_NAMES,
    Issued as Issued,
    gather_communication as gather_communication,
    group_names as group_names,
    issue_order as issue_order,
)
from ._replay import replay as replay
from ._summary import (
    GroupSummary as GroupSummary,
    RankSummary as RankSummary,
    WorkloadSummary as WorkloadSummary,
    summarize as summarize,
)
