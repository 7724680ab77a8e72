from ._files import (
    FolderKind as FolderKind,
    atomic_folder as atomic_folder,
    atomic_path as atomic_path,
    install_folder as install_folder,
    recover as recover,
    require_replaceable as require_replaceable,
    strangers as strangers,
    write_bytes as write_bytes,
    write_files as write_files,
    write_text as write_text,
)
from ._limits import (
    NODE_BYTES as NODE_BYTES,
    Limits as Limits,
    format_size as format_size,
    require_few_bytes as require_few_bytes,
    require_few_ranks as require_few_ranks,
    written_bytes as written_bytes,
)
from ._locks import LOCK as LOCK, locked as locked
from ._memory import memory_left as memory_left
from ._names import did_you_mean as did_you_mean
from ._native import library as library
from ._progress import (
    log_stages as log_stages,
    stage as stage,
    stages as stages,
    track as track,
)
from ._reading import (
    Unpacked as Unpacked,
    inside as inside,
    open_unpacked as open_unpacked,
    read_parsed as read_parsed,
    read_whole as read_whole,
    require_memory as require_memory,
    require_parsable as require_parsable,
    require_plain_archive as require_plain_archive,
)
from ._rng import (
    GOLDEN_GAMMA as GOLDEN_GAMMA,
    derive_seed as derive_seed,
    numpy_generator as numpy_generator,
    scrambled as scrambled,
    shifted_right as shifted_right,
)
from ._settings import (
    MAX_CONFIG_BYTES as MAX_CONFIG_BYTES,
    build_settings as build_settings,
    flattened as flattened,
    grouped as grouped,
    load_yaml as load_yaml,
    load_yaml_texts as load_yaml_texts,
)
from ._waiting import wait_briefly as wait_briefly
