from ._calibration import (
    CalibratedMachine as CalibratedMachine,
    Link as Link,
    Prediction as Prediction,
    Spread as Spread,
)
from ._costs import Costs as Costs, DeviceCosts as DeviceCosts, OperatorCosts as OperatorCosts
from ._files import (
    read_machine as read_machine,
    require_replaceable_machine as require_replaceable_machine,
    write_machine as write_machine,
)
from ._fit import calibrate as calibrate, fit_link as fit_link
from ._runs import MeasuredRun as MeasuredRun, read_runs_of as read_runs_of
