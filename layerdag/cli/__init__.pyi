from ._collect_step import collect_step as collect_step
from ._main import main as main
from ._start import (
    with_brief_spinning as with_brief_spinning,
    without_blas_threads as without_blas_threads,
    without_garbage_search as without_garbage_search,
)
from ._stopping import Terminated as Terminated
