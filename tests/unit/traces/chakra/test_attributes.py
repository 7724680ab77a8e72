import math

import pytest

from layerdag.errors import TraceError
from layerdag.traces import Wire
from layerdag.traces.chakra._attributes import scalar_to_word, word_to_scalar

SIGNED_32 = (Wire.INT32, Wire.SINT32, Wire.SFIXED32)
SIGNED_64 = (Wire.INT64, Wire.SINT64, Wire.SFIXED64)
RANGES = {
    **dict.fromkeys(SIGNED_32, (-(2**31), 2**31 - 1)),
    **dict.fromkeys(SIGNED_64, (-(2**63), 2**63 - 1)),
    **dict.fromkeys((Wire.UINT32, Wire.FIXED32), (0, 2**32 - 1)),
    **dict.fromkeys((Wire.UINT64, Wire.FIXED64), (0, 2**64 - 1)),
    Wire.BOOL: (0, 1),
}


@pytest.mark.parametrize("wire", RANGES)
def test_integers_have_the_range_of_protobuf(wire: Wire) -> None:
    low, high = RANGES[wire]
    for value in (low, 0, 1, high):
        assert word_to_scalar(wire, scalar_to_word(wire, value)) == value
    for value in (low - 1, high + 1, 0.5):
        with pytest.raises(TraceError, match="does not fit"):
            scalar_to_word(wire, value)


def test_whole_floats_are_integers_and_text_is_none() -> None:
    assert scalar_to_word(Wire.INT64, 3.0) == 3
    with pytest.raises(TraceError, match="needs a number, found 'x'"):
        scalar_to_word(Wire.INT64, "x")


def test_floats_keep_their_bits_and_overflow_is_refused() -> None:
    assert scalar_to_word(Wire.DOUBLE, 1.0) == 0x3FF0000000000000
    assert scalar_to_word(Wire.FLOAT, 1.0) == 0x3F800000
    assert word_to_scalar(Wire.DOUBLE, scalar_to_word(Wire.DOUBLE, -math.pi)) == -math.pi
    with pytest.raises(TraceError, match="does not fit"):
        scalar_to_word(Wire.FLOAT, 1e39)
