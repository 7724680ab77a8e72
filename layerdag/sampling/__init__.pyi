from ._folder import doubt_sampled_jobs as doubt_sampled_jobs, doubt_samples as doubt_samples
from ._generated import GeneratedGraph as GeneratedGraph
from ._sample import pretrained_checkpoint as pretrained_checkpoint, sample as sample
from ._sample_files import as_workload as as_workload
from ._sampling import (
    checkpoint_fingerprint as checkpoint_fingerprint,
    checkpoint_schema as checkpoint_schema,
    generate as generate,
    sample_like as sample_like,
    volume_of as volume_of,
    write_samples as write_samples,
)
from ._settings import (
    LABELS as LABELS,
    REQUESTED as REQUESTED,
    GenerationSettings as GenerationSettings,
)
from ._upgrade import (
    read_old_checkpoint as read_old_checkpoint,
    upgraded as upgraded,
    with_costs as with_costs,
    with_neighbor_kinds as with_neighbor_kinds,
)
