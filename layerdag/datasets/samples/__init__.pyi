from ._iterate import iter_samples as iter_samples, part_samples as part_samples
from ._parquet import (
    TableWriter as TableWriter,
    require_pyarrow as require_pyarrow,
    sample_table as sample_table,
)
from ._part import PART_FORMATS as PART_FORMATS, PartIndex as PartIndex, part_name as part_name
from ._run import RUN as RUN, SampleRun as SampleRun, is_run as is_run
from ._stored import StoredSample as StoredSample
from ._tar import TarWriter as TarWriter
