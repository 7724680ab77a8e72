from ._durations import (
    LEVELS as LEVELS,
    Durations as Durations,
    OperatorDurations as OperatorDurations,
)
from ._fit import (
    cost_columns as cost_columns,
    data_edges as data_edges,
    fit_costs as fit_costs,
    with_times as with_times,
)
from ._fit_durations import (
    costs_and_ranks as costs_and_ranks,
    fit_durations as fit_durations,
    ranks_of as ranks_of,
)
from ._products import (
    PRODUCTS as PRODUCTS,
    ProductForm as ProductForm,
    fits_shapes as fits_shapes,
)
from ._step_time import StepTime as StepTime, fit_step_time as fit_step_time
from ._table import (
    COST_NAMES as COST_NAMES,
    NO_COSTS as NO_COSTS,
    ByteRule as ByteRule,
    Cost as Cost,
    CostTable as CostTable,
    OperatorCosts as OperatorCosts,
)
