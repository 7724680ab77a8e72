from ._batches import (
    BucketedSource as BucketedSource,
    in_order as in_order,
    take_graphs as take_graphs,
)
from ._checkpoint import (
    META as META,
    CheckpointContents as CheckpointContents,
    CheckpointMeta as CheckpointMeta,
    LoadedCheckpoint as LoadedCheckpoint,
    export_checkpoint as export_checkpoint,
    load_checkpoint as load_checkpoint,
    save_checkpoint as save_checkpoint,
)
from ._distributed import World as World, joined_world as joined_world, local_device as local_device
from ._job import (
    Callback as Callback,
    CallbackResult as CallbackResult,
    TrainingRun as TrainingRun,
    TrainResult as TrainResult,
)
from ._loop import train as train
from ._run_folder import (
    BEST as BEST,
    LAST as LAST,
    LOG as LOG,
    PICTURES as PICTURES,
    RUN_FILE as RUN_FILE,
    clear_run as clear_run,
    held_run as held_run,
    remove_checkpoints as remove_checkpoints,
    require_free as require_free,
    require_replaceable_checkpoints as require_replaceable_checkpoints,
    require_resumable as require_resumable,
    run_of as run_of,
)
from ._settings import (
    LearningRateSchedule as LearningRateSchedule,
    OptimizerConfig as OptimizerConfig,
    TrainSettings as TrainSettings,
)
from ._weights import InitialWeights as InitialWeights, Origin as Origin
from .optimization import ParameterGroup as ParameterGroup
