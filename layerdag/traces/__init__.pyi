from ._corpus import (
    INDEX as INDEX,
    CollectedRun as CollectedRun,
    RankClass as RankClass,
    RunRecord as RunRecord,
    embedded_corpus as embedded_corpus,
    read_index as read_index,
    read_run as read_run,
    read_runs as read_runs,
    write_shard as write_shard,
)
from ._dependencies import (
    CONTROL as CONTROL,
    DATA as DATA,
    dependency_edges as dependency_edges,
    drop_dangling as drop_dangling,
    rows_of as rows_of,
    rows_on_a_cycle as rows_on_a_cycle,
    trace_layers as trace_layers,
)
from ._detect import Format as Format, pytorch_format as pytorch_format
from ._read_any import read_any as read_any
from ._trace import (
    Attribute as Attribute,
    AttributeTable as AttributeTable,
    CollectiveType as CollectiveType,
    LazyTraces as LazyTraces,
    NodeType as NodeType,
    Ragged as Ragged,
    Trace as Trace,
    Wire as Wire,
    Workload as Workload,
    wire_name as wire_name,
)
from ._workload import (
    RankFile as RankFile,
    decode_workload as decode_workload,
    encode_workload as encode_workload,
    holds_rank_files as holds_rank_files,
    rank_file as rank_file,
    rank_files as rank_files,
    read_workload as read_workload,
    require_free_prefix as require_free_prefix,
    standing_files as standing_files,
    write_workload as write_workload,
)
from .astra import write_groups as write_groups
