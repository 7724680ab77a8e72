from ._algorithms import Algorithm as Algorithm, parse_implementation as parse_implementation
from ._diagnosis import describe as describe, explain as explain
from ._event_loop import Outcome as Outcome
from ._groups import refuse_described_world as refuse_described_world
from ._nodes import (
    MAX_TIME_NS as MAX_TIME_NS,
    ClassProgram as ClassProgram,
    NodeKind as NodeKind,
    Slot as Slot,
)
from ._phases import CollectivePlan as CollectivePlan, PhaseType as PhaseType
from ._program import Program as Program, lower as lower
