import pytest
from trace_examples import framed, number, rich_trace, text

from layerdag.errors import TraceError
from layerdag.traces.chakra import encode_trace
from layerdag.traces.chakra._schema_version import detect_schema_version

STRINGS = b"".join(text(field, "[]") for field in range(5, 11))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (framed(number(1, 0) + text(2, "a") + number(3, 3) + number(7, 9)), "0.0.1"),
        (framed(number(1, 0) + text(2, "a") + number(3, 4) + STRINGS), "0.0.2"),
        (framed(b"", number(1, 0) + text(2, "a") + number(3, 4) + STRINGS), "0.0.3"),
        (framed(b"", number(1, 0) + text(2, "a") + text(5, b"\x01\x02")), "1.0.0"),
        (encode_trace(rich_trace()), "1.0.0"),
        (b"", "1.0.0"),
        (b"\xff" * 40, "1.0.0"),
    ],
)
def test_generation_is_told_from_the_fields(data: bytes, expected: str) -> None:
    assert detect_schema_version(data, "x") == expected


def test_nodes_of_today_without_metadata_are_refused() -> None:
    with pytest.raises(TraceError, match=r"x\.et: begins with a node"):
        detect_schema_version(framed(number(1, 7) + text(5, b"\x01")), "x.et")
