from ._exploration import Exploration as Exploration, explore as explore
from ._outcome import Outcome as Outcome
from ._study import (
    Link as Link,
    PlanSpace as PlanSpace,
    StudiedCluster as StudiedCluster,
    StudiedStep as StudiedStep,
    Study as Study,
    read_study as read_study,
)
