from ._collectives import (
    COMMUNICATION as COMMUNICATION,
    CommunicationOperator as CommunicationOperator,
)
from ._composites import is_composite as is_composite
from ._flops import operation_count as operation_count
from ._schemas import OpRole as OpRole, Signature as Signature, signature as signature
from ._tensors import (
    DTYPES as DTYPES,
    UNKNOWN_DTYPE as UNKNOWN_DTYPE,
    WHOLE as WHOLE,
    BlockTensors as BlockTensors,
    TensorView as TensorView,
)
