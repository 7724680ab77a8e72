from ._format import PACKED as PACKED, PackedHeader as PackedHeader, is_packed as is_packed
from ._graphs import PackedGraphs as PackedGraphs
from ._pack import SCHEMA_NODES as SCHEMA_NODES, pack_folder as pack_folder
from ._read import load_packed as load_packed
