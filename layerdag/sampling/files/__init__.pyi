from ._sample_files import (
    SampleFiles as SampleFiles,
    as_workload as as_workload,
    job_ranks as job_ranks,
)
from ._volume import (
    Volume as Volume,
    asked_ranks as asked_ranks,
    expected_volume as expected_volume,
)
