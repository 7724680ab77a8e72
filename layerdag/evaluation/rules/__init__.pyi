from ._base import (
    Finding as Finding,
    Rule as Rule,
    Severity as Severity,
    has_errors as has_errors,
)
from ._depth_counts import DepthCounts as DepthCounts, DepthRow as DepthRow
from ._graph import (
    StructureReport as StructureReport,
    StructureTally as StructureTally,
    check_structure as check_structure,
)
from ._graph_table import GRAPH_RULES as GRAPH_RULES
from ._trace import column as column, group_texts as group_texts
from ._trace_table import TRACE_RULES as TRACE_RULES
from ._workload import (
    check_group_file as check_group_file,
    check_workload as check_workload,
    is_group_name as is_group_name,
)
