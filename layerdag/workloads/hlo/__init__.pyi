from ._hardware import HARDWARE as HARDWARE, Hardware as Hardware
from ._program import (
    Collective as Collective,
    Computation as Computation,
    Program as Program,
    Tensor as Tensor,
)
from ._reading import is_program_file as is_program_file, read_program as read_program
from ._regions import Region as Region, Split as Split, regions as regions
from ._summary import ProgramSummary as ProgramSummary, summarize_program as summarize_program
from ._traces import program_workload as program_workload
