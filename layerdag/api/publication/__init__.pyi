from ._evaluation import similarity_of as similarity_of
from ._folder import (
    DRAWN as DRAWN,
    HASHES as HASHES,
    SHADOWS as SHADOWS,
    STUDENT as STUDENT,
    TRAINING as TRAINING,
    Work as Work,
    held_work as held_work,
)
from ._release import Release as Release, release as release, run_release as run_release
from ._settings import STAGES as STAGES, ReleaseSettings as ReleaseSettings
from ._verdict import Outcome as Outcome, ReleaseVerdict as ReleaseVerdict
