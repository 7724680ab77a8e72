from ._ema import ExponentialMovingAverage as ExponentialMovingAverage, copy_weights as copy_weights
from ._lr_schedule import learning_rate_factor as learning_rate_factor
from ._optimizer import Optimizer as Optimizer
from ._selection import (
    ParameterGroup as ParameterGroup,
    best_weights as best_weights,
    parameter_groups as parameter_groups,
)
