from ._any_graph import (
    is_flow_file as is_flow_file,
    read_flow as read_flow,
    read_graph as read_graph,
)
from ._dot import read_dot as read_dot, write_dot as write_dot
from ._flow_files import (
    decode_json as decode_json,
    encode_json as encode_json,
    read_json as read_json,
    write_json as write_json,
)
from ._flow_format import FlowFormat as FlowFormat, flow_format as flow_format
from ._graphml import (
    decode_graphml as decode_graphml,
    encode_graphml as encode_graphml,
    read_graphml as read_graphml,
    write_graphml as write_graphml,
)
from ._labels import (
    STEP_TIMES as STEP_TIMES,
    Labels as Labels,
    read_labels as read_labels,
    read_step_time as read_step_time,
    write_step_times as write_step_times,
)
from ._node_link import read_node_link as read_node_link
from ._wfformat import read_wfformat as read_wfformat
from ._wfformat_writer import write_wfformat as write_wfformat
