from pathlib import Path

import pytest
from trace_examples import coll, comp

from layerdag.errors import UsageError
from layerdag.traces.chakra import build_trace
from layerdag.viz import save_picture, view_of_trace
from layerdag.viz._figure import draw, smooth


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


def test_curves_leave_and_enter_vertically() -> None:
    vertices, codes = smooth([(0.0, 0.0), (2.0, 4.0), (2.0, 6.0)])
    assert codes.tolist() == [1, 4, 4, 4, 4, 4, 4]
    assert vertices.tolist() == [[0, 0], [0, 2], [2, 2], [2, 4], [2, 5], [2, 5], [2, 6]]


def axes_of(found):
    from matplotlib.figure import Figure

    axes = Figure(figsize=(8, 4)).add_axes((0, 0, 1, 1))
    draw(axes, found)
    return axes


def test_the_legend_names_every_kind_and_control_where_there_is_any() -> None:
    plain = axes_of(view(3)).get_legend()
    assert [text.get_text() for text in plain.get_texts()] == ["COMP", "COMM_COLL"]
    control = view_of_trace(build_trace([comp(0), comp(1, ctrl=(0,))]))
    dashed = axes_of(control).get_legend()
    assert [text.get_text() for text in dashed.get_texts()] == ["COMP", "control"]


def test_boxes_stand_on_the_layers_and_long_names_are_cut_in_the_middle() -> None:
    name = "a_very_long_operator_name_indeed"
    axes = axes_of(view_of_trace(build_trace([comp(0, name=name), comp(7, 0, name="")])))
    texts = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert texts == {name[:10] + "…" + name[-11:]: 0, "7": 1}


def test_edges_are_drawn_solid_or_dashed() -> None:
    trace = build_trace([comp(0), comp(1, 0), comp(2, 1, ctrl=(0,))])
    solid, dashed = axes_of(view_of_trace(trace)).collections
    assert (len(solid.get_paths()), len(dashed.get_paths())) == (2, 1)
