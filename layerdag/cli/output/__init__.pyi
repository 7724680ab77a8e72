from ._audit import audit as audit, show as show
from ._simulation import peak_memory as peak_memory, report as report, summary as summary
from ._split_advice import too_few_held_out as too_few_held_out
from ._watch import Watch as Watch
