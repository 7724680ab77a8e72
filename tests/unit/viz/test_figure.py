from pathlib import Path

import pytest
from trace_examples import coll, comp

from layerdag.errors import UsageError
from layerdag.traces.chakra import build_trace
from layerdag.viz import save_picture, view_of_trace


def view(size: int):
    return view_of_trace(
        build_trace(
            [comp(0, name="$x_1$ first"), *(comp(at, at - 1) for at in range(1, size)), coll(size)]
        )
    )


@pytest.mark.parametrize(
    ("suffix", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")]
)
def test_suffix_chooses_the_format(tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"x.{suffix}"
    save_picture(view(3), path)
    assert path.read_bytes().startswith(magic)


def test_small_graphs_carry_names_and_large_ones_dots(tmp_path: Path) -> None:
    save_picture(view(3), tmp_path / "small.svg")
    save_picture(view(90), tmp_path / "large.svg")
    small, large = ((tmp_path / name).read_text() for name in ("small.svg", "large.svg"))
    assert "$x_1$ first" in small
    assert "COMM_COLL" in small
    # In the legend only.
    assert large.count("aten::mm</text>") == 1


def test_same_graph_gives_the_same_svg(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        save_picture(view(4), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_too_large_graph_is_wrong_use_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layerdag.viz._figure.MOST_NODES", 2)
    with pytest.raises(UsageError, match="zoomable page"):
        save_picture(view(2), tmp_path / "x.svg")
    assert not list(tmp_path.iterdir())
