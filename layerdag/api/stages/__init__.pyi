from ._beside import begin_beside as begin_beside
from ._examples import (
    can_be_drawn as can_be_drawn,
    neighbors_of as neighbors_of,
    timelines_of as timelines_of,
)
from ._graphs import (
    DecodedJobs as DecodedJobs,
    decoded_jobs as decoded_jobs,
    kind_of as kind_of,
    picture_of as picture_of,
    vocabularies as vocabularies,
)
from ._simulation import (
    SimulatedWorkloads as SimulatedWorkloads,
    simulate_stage as simulate_stage,
    simulation_parts as simulation_parts,
    systems as systems,
)
from ._transfer import transferred as transferred
