"""The errors that layerdag raises on purpose.

Every message is a sentence that says what is wrong, where (file, node, rank), what was found, and
what to do about it. The tree::

    LayerdagError                anything below; catch this to catch them all
    ├── UsageError               the command or call itself is wrong        (exit code 2)
    │   ├── ConfigError          a configuration key or value is wrong
    │   ├── CaptureError         an operator failed while a step was captured
    │   └── WrongNameError       a name that layerdag does not have; says which it has
    ├── TrainingError            training diverged                          (exit code 1)
    └── DataError                the data handed in is wrong                (exit code 1)
        ├── TraceError           an execution trace cannot be read or is inconsistent
        ├── GraphError           a graph is not a DAG, or its tensors contradict each other
        ├── VocabularyError      a value lies outside the vocabulary it must come from
        ├── CheckpointError      a checkpoint is damaged, incomplete or of another format
        ├── MissingSampleError   a seed gives no program that runs, or none that fits the plan
        └── SimulationError      a workload cannot run to its end on the given system

``assert`` is kept for invariants of the package itself; what a user can cause raises one of these.
"""


class LayerdagError(Exception):
    """Base of all errors that layerdag raises on purpose."""


class UsageError(LayerdagError):
    """The call or the command line is wrong, whatever the data."""


class ConfigError(UsageError):
    """A configuration key is unknown or its value is out of bounds."""


class CaptureError(UsageError):
    """An operator of a module or program failed while its step was captured."""


class WrongNameError(UsageError, AttributeError):
    """A name that other libraries have and layerdag does not; the message says which it has.

    It is an ``AttributeError``, so that ``hasattr`` says no.
    """


class TrainingError(LayerdagError):
    """Training cannot go on: a loss or gradient is not finite."""


class DataError(LayerdagError):
    """The data that was handed in cannot be used."""


class TraceError(DataError):
    """An execution trace cannot be read, or contradicts itself."""


class GraphError(DataError):
    """A graph has a cycle, or its tensors contradict each other."""


class VocabularyError(DataError):
    """A value lies outside the vocabulary or range that it must come from."""


class CheckpointError(DataError):
    """A checkpoint is damaged, incomplete, or of another format."""


class MissingSampleError(DataError):
    """A seed gives no program that runs, or none with a step under the plan that is asked for."""


class SimulationError(DataError):
    """A workload cannot run to its end on the given system (deadlock, mismatch, missing rank)."""
