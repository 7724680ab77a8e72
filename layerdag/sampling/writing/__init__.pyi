from ._batches_of_ids import SampleBatches as SampleBatches
from ._folder import doubt_sampled_jobs as doubt_sampled_jobs, doubt_samples as doubt_samples
from ._request import FORMATS as FORMATS, sample_entry as sample_entry, volume_of as volume_of
from ._shard import Shard as Shard
from ._write_parts import (
    PART_SIZE as PART_SIZE,
    PartSettings as PartSettings,
    volume_of_parts as volume_of_parts,
    write_parts as write_parts,
)
from ._write_samples import write_samples as write_samples
