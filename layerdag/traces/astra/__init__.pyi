from ._group_file import (
    decode_groups as decode_groups,
    encode_groups as encode_groups,
    read_groups as read_groups,
    write_groups as write_groups,
)
from ._step import text_to_workload as text_to_workload
from ._text import PARALLELISMS as PARALLELISMS, parse_text as parse_text
