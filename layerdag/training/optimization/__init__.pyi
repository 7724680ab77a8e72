from ._ema import WeightAverage as WeightAverage, copy_weights as copy_weights
from ._lr_schedule import rate_factor as rate_factor
from ._optimizer import Optimizer as Optimizer
