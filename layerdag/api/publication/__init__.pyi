from ._evaluation import similarity_of as similarity_of
from ._folder import (
    DRAWN as DRAWN,
    FOLDS as FOLDS,
    HASHES as HASHES,
    SHADOWS as SHADOWS,
    STUDENT as STUDENT,
    TRAINING as TRAINING,
    Work as Work,
    held_work as held_work,
)
from ._release import Release as Release, release as release, run_release as run_release
from ._settings import STAGES as STAGES, ReleaseSettings as ReleaseSettings
from ._split import (
    runs_by_likeness as runs_by_likeness,
    runs_for_cross_fitting as runs_for_cross_fitting,
)
from ._verdict import Outcome as Outcome, ReleaseVerdict as ReleaseVerdict
