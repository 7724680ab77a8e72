from ._folder import held_demo as held_demo
from ._provenance import caveats as caveats, provenance as provenance, training as training
from ._report import report as report
from ._stages import DemoSettings as DemoSettings, timed as timed
