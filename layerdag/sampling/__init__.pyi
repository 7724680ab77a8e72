from ._generated import GeneratedGraph as GeneratedGraph, sample_name as sample_name
from ._repeats import (
    conditions_for_model as conditions_for_model,
    unrolled_sizes as unrolled_sizes,
)
from ._sample import (
    SHIPPED as SHIPPED,
    pretrained_checkpoint as pretrained_checkpoint,
    sample as sample,
)
from ._sampling import (
    checkpoint_fingerprint as checkpoint_fingerprint,
    checkpoint_schema as checkpoint_schema,
    generate as generate,
    generate_together as generate_together,
    given_layers as given_layers,
    sample_like as sample_like,
)
from ._settings import (
    LABELS as LABELS,
    REQUESTED as REQUESTED,
    GenerationSettings as GenerationSettings,
)
from .files import as_workload as as_workload
from .writing import (
    PartSettings as PartSettings,
    SampleBatches as SampleBatches,
    Shard as Shard,
    doubt_sampled_jobs as doubt_sampled_jobs,
    doubt_samples as doubt_samples,
    volume_of as volume_of,
    volume_of_parts as volume_of_parts,
    write_parts as write_parts,
    write_samples as write_samples,
)
