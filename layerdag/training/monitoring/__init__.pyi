from ._budget import Budget as Budget
from ._loggers import (
    ConsoleLogger as ConsoleLogger,
    JsonlLogger as JsonlLogger,
    Logger as Logger,
    LoggerSettings as LoggerSettings,
)
from ._meter import Meter as Meter
from ._signals import StopRequest as StopRequest, listening as listening
from ._wandb_logger import (
    DISABLED as DISABLED,
    WandbLogger as WandbLogger,
    wandb_mode as wandb_mode,
)
