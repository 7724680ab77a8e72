from ._importer import DeviceTrace as DeviceTrace, import_device as import_device
from ._kineto import (
    RECORD_FUNCTION as RECORD_FUNCTION,
    Event as Event,
    Profile as Profile,
    read_profile as read_profile,
    read_timings as read_timings,
)
from ._timings import (
    Timings as Timings,
    read_durations as read_durations,
    write_durations as write_durations,
)
