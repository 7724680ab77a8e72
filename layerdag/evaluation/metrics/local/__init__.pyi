from ._blocks import (
    Block as Block,
    BlockFigure as BlockFigure,
    RepeatedBlocks as RepeatedBlocks,
    repeated_blocks as repeated_blocks,
)
from ._defaults import LOCAL_METRICS as LOCAL_METRICS
from ._joint_tails import JointTail as JointTail, JointTails as JointTails
from ._node_classifier import (
    NodeClassifier as NodeClassifier,
    NodeRows as NodeRows,
    node_rows as node_rows,
)
from ._operator_inputs import (
    MissingInputs as MissingInputs,
    OperatorInputs as OperatorInputs,
    backward_needs as backward_needs,
    step_needs as step_needs,
)
from ._paths import (
    OperatorPaths as OperatorPaths,
    PathDistance as PathDistance,
    PathNovelty as PathNovelty,
    operator_paths as operator_paths,
)
from ._shapes import ShapeViolation as ShapeViolation, ShapeViolations as ShapeViolations
from ._type_hashes import TypeHashDistance as TypeHashDistance, type_hashes as type_hashes
