from ._binary import (
    AstraLogs as AstraLogs,
    AstraRequest as AstraRequest,
    run_binary as run_binary,
    write_ticks as write_ticks,
)
from ._config_files import (
    read_memory as read_memory,
    read_network as read_network,
    read_system as read_system,
)
