from ._batches import BucketedSource as BucketedSource
from ._checkpoint import (
    META as META,
    LoadedCheckpoint as LoadedCheckpoint,
    load_checkpoint as load_checkpoint,
)
from ._distributed import World as World, joined_world as joined_world, local_device as local_device
from ._job import Observation as Observation, TrainJob as TrainJob, TrainResult as TrainResult
from ._loop import train as train
from ._selection import Track as Track
from ._settings import TrainSettings as TrainSettings
