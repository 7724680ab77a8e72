from ._breakdown import break_down as break_down
from ._critical_path import by_node as by_node, critical_path as critical_path
from ._exports import (
    NODE_COLUMNS as NODE_COLUMNS,
    write_nodes as write_nodes,
    write_timeline as write_timeline,
)
from ._memory import local_memory as local_memory
from ._sensitivity import ScaledCompute as ScaledCompute, sensitivities as sensitivities
