from ._folder import doubt_samples as doubt_samples
from ._sampling import (
    ASKED as ASKED,
    LABELS as LABELS,
    GeneratedGraph as GeneratedGraph,
    GenerationSettings as GenerationSettings,
    as_workload as as_workload,
    checkpoint_schema as checkpoint_schema,
    generate as generate,
    sample_like as sample_like,
    write_samples as write_samples,
)
