from ._capture import Capture as Capture, capture as capture, record_raw as record_raw
from ._files import find_rank_files as find_rank_files
from ._importer import import_pytorch as import_pytorch
from ._one_rank import (
    LostCommunication as LostCommunication,
    run_by_every_rank as run_by_every_rank,
    taken_alone as taken_alone,
)
from ._process_groups import (
    MOST_RANKS as MOST_RANKS,
    ProcessGroups as ProcessGroups,
    Ranks as Ranks,
    declared_groups as declared_groups,
    number_groups as number_groups,
    process_groups as process_groups,
)
from ._ranks import (
    ImportedJob as ImportedJob,
    import_ranks as import_ranks,
    refuse_missing_ranks as refuse_missing_ranks,
)
from ._replay_files import write_replay as write_replay
