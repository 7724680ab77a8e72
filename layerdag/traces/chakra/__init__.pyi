from ._attributes import (
    attribute_at as attribute_at,
    scalar_to_word as scalar_to_word,
    value_of as value_of,
)
from ._builder import (
    NodeColumns as NodeColumns,
    NodeSpec as NodeSpec,
    build_trace as build_trace,
    ragged as ragged,
)
from ._feeder_json import (
    decode_feeder_json as decode_feeder_json,
    encode_feeder_json as encode_feeder_json,
)
from ._files import (
    decode_trace as decode_trace,
    encode_trace as encode_trace,
    read_trace as read_trace,
    write_trace as write_trace,
)
from ._normalize import (
    FEEDER_WIRES as FEEDER_WIRES,
    REQUIRED_ATTRIBUTES as REQUIRED_ATTRIBUTES,
    START_BYTES as START_BYTES,
    START_OPS as START_OPS,
    normalize as normalize,
    off_the_cpu as off_the_cpu,
    retyped as retyped,
    without_nodes as without_nodes,
)
from ._trace_json import (
    FORMAT as FORMAT,
    decode_trace_json as decode_trace_json,
    encode_trace_json as encode_trace_json,
)
