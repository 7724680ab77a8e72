from ._folder import held_demo as held_demo
from ._provenance import caveats as caveats, provenance as provenance, training as training
from ._report import report as report
from ._simulation import SimulatedWorkloads as SimulatedWorkloads
from ._stages import DemoSettings as DemoSettings, kind_of as kind_of, timed as timed
