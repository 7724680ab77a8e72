from ._dataflow import dependencies as dependencies
from ._files import read_host_blocks as read_host_blocks
from ._importer import (
    ImportResult as ImportResult,
    import_host as import_host,
    import_operations as import_operations,
    read_host as read_host,
)
from ._operation import Operation as Operation
from ._operations import HostOperations as HostOperations
from ._scan import HostBlock as HostBlock
