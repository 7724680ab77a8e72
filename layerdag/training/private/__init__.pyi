from ._accountant import (
    epsilon_of as epsilon_of,
    noise_multiplier as noise_multiplier,
    require_accountant as require_accountant,
)
from ._adapters import Adapters as Adapters
from ._attack import Attack as Attack, scores as scores
from ._canaries import Canaries as Canaries, canary_graphs as canary_graphs
from ._gradients import (
    Decisions as Decisions,
    clipped as clipped,
    graph_nats as graph_nats,
)
from ._guarantee import Guarantee as Guarantee
from ._lower_bound import (
    LowerBound as LowerBound,
    guess_half as guess_half,
    lower_bound as lower_bound,
)
from ._noise import SecretGenerator as SecretGenerator
from ._privacy import AUTO as AUTO, Privacy as Privacy
from ._scales import code_scales as code_scales
from ._tuning import (
    OWNER_ONLY as OWNER_ONLY,
    PrivateResult as PrivateResult,
    PrivateRun as PrivateRun,
    tune as tune,
)
from ._units import Units as Units, read_owners as read_owners
