from ._bad_generators import bad_generators as bad_generators
from ._clusters import CLUSTERS as CLUSTERS, RankedCluster as RankedCluster
from ._comparison import (
    RankingReport as RankingReport,
    RankingRow as RankingRow,
    compare_rankings as compare_rankings,
)
from ._figures import (
    TARGETS as TARGETS,
    SimulatedJobs as SimulatedJobs,
    simulate_jobs as simulate_jobs,
)
from ._jobs import RankedJob as RankedJob, ranked_job as ranked_job
from ._live_bytes import live_bytes as live_bytes
from ._orders import ORDERS as ORDERS, kendall as kendall
