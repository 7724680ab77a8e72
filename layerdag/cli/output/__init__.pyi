from ._audit import audit as audit, show as show
from ._simulation import peak_memory as peak_memory, report as report, summary as summary
from ._watch import Watch as Watch
