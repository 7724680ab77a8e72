from ._fit import data_edges as data_edges, fit_costs as fit_costs
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
