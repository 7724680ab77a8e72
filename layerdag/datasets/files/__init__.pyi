from ._any_graph import is_flow_file as is_flow_file, read_graph as read_graph
from ._flow_files import read_json as read_json, write_json as write_json
from ._graphml import read_graphml as read_graphml, write_graphml as write_graphml
from ._labels import (
    STEP_TIMES as STEP_TIMES,
    Labels as Labels,
    read_labels as read_labels,
    read_step_time as read_step_time,
    write_step_times as write_step_times,
)
