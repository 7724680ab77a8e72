"""The charts of pages: matplotlib figures as inline SVG, in the colors of their style sheet."""

import hashlib
import io
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from layerdag.report.content import CategoryFractions, Distribution, Lane, Picture, Sample, Timeline
from layerdag.viz.drawing import CLASS_COLORS, draw_edges, layered_layout
from layerdag.viz.numbers import number, percent
from layerdag.workloads.exploration import PlanOutcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from layerdag.differences.difference import AlignedPrograms

_SAMPLES = (("train", (0, (0.75, 1.25))), ("test", (0, (3, 1.25))), ("synthetic", "solid"))
"""Color and dashes of real training graphs, real test graphs and synthetic ones."""


@cache
def colors() -> dict[str, str]:
    """Return the colors of the style sheet on light paper, by name.

    Figures are drawn in these; the page shows each as the variable of the same name, so that
    they follow its dark and its printed look.
    """
    style = (files("layerdag.report") / "templates" / "style.css").read_text()
    return dict(re.findall(r"--(\w+): (#\w{6});", style.partition("}")[0]))


def _figure(width: int | float, height: int | float) -> "Figure":
    """Return an empty figure, measured in pixels of the SVG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    figure.patch.set_visible(False)
    return figure


def _axes(
    figure: "Figure", left: int | float, top: int | float, right: int | float, bottom: int | float
) -> "Axes":
    """Return axes at a place of the figure in pixels, with a ruled frame and quiet ticks."""
    width, height = figure.get_size_inches() * 72
    place = (left / width, 1 - bottom / height, (right - left) / width, (bottom - top) / height)
    axes = figure.add_axes(place)
    axes.patch.set_visible(False)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=5, labelsize=11, labelcolor=colors()["soft"])
    return axes


def _label(text: str) -> str:
    return text.replace("$", r"\$")  # matplotlib reads text between dollar signs as a formula


def _titled(axes: "Axes", across: str = "", up: str = "") -> None:
    axes.set_xlabel(_label(across), fontsize=11, color=colors()["ink"])
    axes.set_ylabel(_label(up), fontsize=11, color=colors()["ink"])


def _round_ticks(axes: "Axes", name: str, low: float, high: float, log: bool) -> None:
    """Scale the axis "x" or "y", and put its ticks at a few round values."""
    from matplotlib.ticker import FixedFormatter, LogLocator, MaxNLocator, NullLocator

    axis = axes.xaxis if name == "x" else axes.yaxis
    if log:
        axes.set(**{f"{name}scale": "log"})
        axis.set_minor_locator(NullLocator())
    axes.set(**{f"{name}lim": (low, high)})
    decades = np.log10(high / low) if log else 0.0
    # Less than a decade has too few powers of ten: even steps read better.
    locator = (
        LogLocator(subs=(1, 2, 5) if decades < 2 else (1,), numticks=6)
        if decades >= 1
        else MaxNLocator(5, steps=[1, 2, 5, 10])
    )
    ticks = [tick for tick in locator.tick_values(low, high) if low <= tick <= high]
    axis.set_ticks(ticks)
    axis.set_major_formatter(FixedFormatter([tick_text(tick) for tick in ticks]))


def tick_text(value: float) -> str:
    """Return a tick's number, whole numbers without decimals."""
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e6 else number(value, 2)


def _inline(
    figure: "Figure", label: str, texts: Mapping[str, str | Sequence[str]], style: str = ""
) -> Markup:
    """Return a figure as SVG for the middle of a page.

    Args:
        figure: The drawing.
        label: What it shows, for screen readers.
        texts: What appears when an artist is pointed at, by its gid; several are for the shapes of
            a collection.
        style: CSS of the drawing.
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "layerdag"}):
        figure.savefig(buffer, format="svg", metadata=no_metadata)
    text = buffer.getvalue()
    # Inside HTML neither a declaration nor name spaces nor fonts of its own are needed.
    text = re.sub(r' xmlns(:xlink)?="[^"]*"|xlink:(?=href)', "", text[text.index("<svg") :])
    text = re.sub(r" font-family: [^;]*;", "", re.sub(r">\s+<", "><", text))
    text = re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", text)
    for name, color in colors().items():
        text = text.replace(color, f"var(--{name})")
    # Figures of one page must not share identifiers.
    mark = hashlib.sha256((label + text).encode()).hexdigest()[:8]
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{mark}", text)
    root = ET.fromstring(text)
    root.remove(root[0])  # a style for all elements, also for those around the figure
    for name in ("width", "height", "version"):
        del root.attrib[name]
    root.attrib |= {"role": "img", "aria-label": label} | ({"style": style} if style else {})
    for group in root.iter("g"):
        shown = texts.get(group.attrib.pop("id", "").removeprefix(mark), ())
        shapes = group.findall("use") or group.findall("g/use") or group.findall("path")
        pairs = [(group, shown)] if isinstance(shown, str) else zip(shapes, shown, strict=False)
        for shape, one in pairs:
            title = ET.Element("title")
            title.text = one
            shape.insert(0, title)
    return Markup(ET.tostring(root, encoding="unicode"))


def _framed(title: str, drawn: Markup, style: str) -> Markup:
    figure = '<figure class="{}"><figcaption>{}</figcaption>{}</figure>'
    return Markup(figure).format(style, title, drawn)


WIDTH = 300
LABELS = 118
"""Room for the names of categories, in pixels."""
NAME_LENGTH = 17
OPERATORS = "aten::"
"""Nearly every operator's name begins so, and the part behind it is what tells them apart."""


def slot(index: int, count: int) -> int:
    """Return the style of a sample: the last is synthetic (2), the one before real test (1)."""
    return index + 3 - count


def shares_chart(shares: CategoryFractions, most: int = 14, items: str = "nodes") -> Markup:
    """Return bars of the largest categories, one bar a sample.

    Args:
        shares: The categories.
        most: Number of categories that are shown.
        items: What the shares are of, for the title of the axis.
    """
    size_K = np.max([fraction_K for _, fraction_K in shares.shares], axis=0)
    order = np.argsort(-size_K, kind="stable")[:most]
    count = len(shares.shares)
    height = 30 + len(order) * (4 + 5 * count)
    figure = _figure(WIDTH, height)
    axes = _axes(figure, LABELS, 8, WIDTH - 54, height - 22)
    texts = {}
    bar = 5 / (4 + 5 * count)
    for i, (source, fraction_K) in enumerate(shares.shares):
        color = colors()[_SAMPLES[slot(i, count)][0]]
        at_K = np.arange(len(order)) + bar * i
        drawn = axes.barh(at_K, fraction_K[order], 0.88 * bar, align="edge", color=color)
        for row, (patch, fraction) in enumerate(zip(drawn, fraction_K[order], strict=True)):
            patch.set_gid(f"bar {i} {row}")
            texts[f"bar {i} {row}"] = f"{source}: {100 * float(fraction):.2f} %"
    middle_K = np.arange(len(order)) + bar * count / 2
    for row, category in enumerate(order.tolist()):
        name = _label(_shortened(shares.labels[category].removeprefix(OPERATORS), NAME_LENGTH))
        quiet: dict[str, Any] = {"va": "center", "fontsize": 11, "color": colors()["soft"]}
        axes.text(-0.02, middle_K[row], name, ha="right", transform=axes.get_yaxis_transform(),
                  gid=f"name {row}", **quiet)  # fmt: skip
        texts[f"name {row}"] = shares.labels[category]
        end = float(size_K[category])
        axes.annotate(percent(end), (end, middle_K[row]), (4, 0), textcoords="offset points",
                      annotation_clip=False, **quiet)  # fmt: skip
    axes.set(xlim=(0, max(float(size_K.max(initial=0)), 1e-9)), xticks=[], yticks=[])
    axes.set_ylim(max(len(order), 1), 0)
    _titled(axes, f"share of {items}, %")
    hidden = len(shares.labels) - len(order)
    title = shares.title + (f" (largest {len(order)}, {hidden} not shown)" if hidden else "")
    return _framed(title, _inline(figure, f"Shares of {shares.title}", texts), "chart bars")


def _shortened(name: str, length: int) -> str:
    tail = length // 2 - 1
    return name if len(name) <= length else f"{name[: length - 1 - tail]}…{name[-tail:]}"


MAX_POINTS = 200
BINS = 16


def distribution_chart(distribution: Distribution) -> Markup:
    """Return histogram and cumulative distribution of each sample on one axis.

    The area between two of the cumulative lines is their Wasserstein-1 distance.
    """
    low, high = _range(distribution)
    spaced = np.geomspace if distribution.log else np.linspace
    edges = spaced(low, high, BINS + 1)
    figure = _figure(WIDTH, 236)
    upper, lower = _axes(figure, 50, 8, 290, 68), _axes(figure, 50, 84, 290, 194)
    count = len(distribution.samples)
    for i, sample in enumerate(distribution.samples):
        color, dashes = _SAMPLES[slot(i, count)]
        look: dict[str, Any] = {
            "color": colors()[color],
            "linestyle": dashes,
            "linewidth": 2,
            "clip_on": False,
        }
        upper.stairs(_binned(sample, edges), edges, gid=f"histogram {i}", **look)
        x, y = _steps(sample, low, high)
        lower.step(x, y, where="post", gid=f"cumulative {i}", **look)
    top = max(upper.dataLim.ymax, 1e-9)
    for axes, shares in ((upper, (0.0, top)), (lower, (0.0, 0.5, 1.0))):
        _round_ticks(axes, "x", low, high, distribution.log)
        axes.set_yticks(shares, [_percent(share) for share in shares])
        axes.set_ylim(0, shares[-1])
        axes.grid(axis="y", color=colors()["rule"], linewidth=1)
    upper.set_xticks([])
    across = distribution.unit or "value"
    _titled(upper, up="share")
    _titled(lower, across + (", logarithmic" if distribution.log else ""), "share up to here")
    figure.align_ylabels()
    unit = f" ({distribution.unit})" if distribution.unit else ""
    names = ", ".join(sample.source for sample in distribution.samples)
    drawn = _inline(figure, f"Distribution of {distribution.title}{unit}: {names}", {})
    return _framed(distribution.title[:1].upper() + distribution.title[1:], drawn, "chart")


def _range(distribution: Distribution) -> tuple[float, float]:
    """Return the range of all samples, cut at the 0.5 % tails so that one outlier hides nothing."""
    lows, highs = [], []
    for sample in distribution.samples:
        value, fraction = _cumulative(sample)
        if distribution.log:
            # Zeros lie left of any logarithmic axis.
            value, fraction = value[value > 0], fraction[value > 0]
        if not value.size:
            continue
        lows.append(value[min(int(np.searchsorted(fraction, 0.005)), value.size - 1)])
        highs.append(value[min(int(np.searchsorted(fraction, 0.995)), value.size - 1)])
    low, high = float(min(lows, default=1.0)), float(max(highs, default=1.0))
    if distribution.log:
        return low, max(high, 2 * low)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _cumulative(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(sample.values, kind="stable")
    value = np.asarray(sample.values, dtype=float)[order]
    weight = np.ones(value.size) if sample.weights is None else sample.weights[order]
    return value, np.cumsum(weight) / max(float(weight.sum()), 1e-300)


def _binned(sample: Sample, edges: np.ndarray) -> np.ndarray:
    """Return the share of the sample in each bin; what lies outside counts at the ends."""
    value = np.clip(np.asarray(sample.values, dtype=float), edges[0], edges[-1])
    count, _ = np.histogram(value, edges, weights=sample.weights)
    return np.asarray(count / max(float(count.sum()), 1e-300))


def _steps(sample: Sample, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Return where the cumulative share rises, within the axis, and to what."""
    value, fraction = _cumulative(sample)
    last = np.append(value[1:] != value[:-1], True)[: value.size]
    value, fraction = value[last], fraction[last]
    if value.size > MAX_POINTS:
        kept = np.unique(np.linspace(0, value.size - 1, MAX_POINTS).astype(int))
        value, fraction = value[kept], fraction[kept]
    x = np.concatenate([[low], np.clip(value, low, high), [high]])
    return x, np.concatenate([[0.0], fraction, fraction[-1:] if fraction.size else [0.0]])


def _percent(fraction: float) -> str:
    return f"{number(100 * fraction, 2)}%" if 0 < fraction < 0.1 else f"{fraction:.0%}"


TIMELINE_WIDTH, LANE, GAP = 480, 18, 5
_LEAST = 0.35 / 328
"""Narrower pieces of a lane, as shares of the axis, are drawn so wide, or joined to the next."""


def timeline_chart(timeline: Timeline, slot_of: dict[str, int], end_ms: float) -> Markup:
    """Return a lane for each rank and what it does, on an axis of milliseconds.

    Args:
        timeline: Of one job.
        slot_of: Color of each kind of work.
        end_ms: Where the axis ends; the same for jobs that stand beside each other.
    """
    bottom = 4 + max(len(timeline.lanes), 1) * (LANE + GAP)
    figure = _figure(TIMELINE_WIDTH, bottom + 40)
    axes = _axes(figure, 142, 4, TIMELINE_WIDTH - 10, bottom)
    end_ms = max(end_ms, 1e-9)
    texts = {}
    height = LANE / (LANE + GAP)
    soft = colors()["soft"]
    for row, lane in enumerate(timeline.lanes):
        axes.broken_barh([(0, end_ms)], (row, height), color=soft, alpha=0.1, linewidth=0)
        for kind in dict.fromkeys(lane.kind_S):
            color = colors()[f"k{slot_of.get(kind, 7)}"]
            gid = f"{row} {kind}"
            pieces = _pieces(lane, kind, end_ms * _LEAST)
            axes.broken_barh(pieces, (row, height), color=color, linewidth=0, gid=gid)
            texts[gid] = kind
    names = [_label(lane.name) for lane in timeline.lanes]
    axes.set_yticks(np.arange(len(names)) + height / 2, names)
    axes.set_ylim(max(len(names), 1), 0)
    _round_ticks(axes, "x", 0.0, end_ms, log=False)
    axes.grid(axis="x", color=colors()["rule"], linewidth=1)
    _titled(axes, "simulated time (ms)")
    label = f"{timeline.title}: {len(timeline.lanes)} lanes, {timeline.duration_ms:.3g} ms"
    caption = f"{timeline.title}, {timeline.duration_ms:.3g} ms"
    return _framed(caption, _inline(figure, label, texts), "chart timeline")


def _pieces(lane: Lane, kind: str, least: float) -> list[tuple[float, float]]:
    """Return start and length of the pieces of a kind; tiny neighbors are one piece."""
    mine = np.array([one == kind for one in lane.kind_S])
    order = np.argsort(lane.start_ms_S[mine], kind="stable")
    ends: list[list[float]] = []
    times = (lane.start_ms_S[mine][order].tolist(), lane.end_ms_S[mine][order].tolist())
    for start, end in zip(*times, strict=True):
        end = max(end, start + least)
        if ends and start <= ends[-1][1] + least / 2:
            ends[-1][1] = max(ends[-1][1], end)
        else:
            ends.append([start, end])
    return [(start, end - start) for start, end in ends]


MAX_DOTS = 1000


def front_chart(
    outcomes: Sequence[PlanOutcome],
    front: Sequence[PlanOutcome],
    slot_of: dict[str, int],
    priced: bool,
) -> Markup:
    """Return a scatter of all outcomes with the front as a line, both axes logarithmic.

    Args:
        outcomes: Those of one model that have a time.
        front: The best of them, by time.
        slot_of: Color of each cluster.
        priced: Whether the second figure is the cost of a step; otherwise it is memory.
    """

    def places(some: Iterable[PlanOutcome]) -> np.ndarray:
        return np.array([(o.step_s, o.second_figure(priced)) for o in some]).T

    shown = list(dict.fromkeys([*front, *outcomes]))[:MAX_DOTS]
    figure = _figure(640, 300)
    axes = _axes(figure, 62, 12, 626, 256)
    x, y = places(shown)
    for axis, value in (("x", x), ("y", y)):
        low, high = float(value.min()) / 1.15, float(value.max()) * 1.15
        _round_ticks(axes, axis, low, high, log=True)
    axes.grid(color=colors()["rule"], linewidth=1)
    if front:
        axes.plot(*places(front), color=colors()["ink"], linewidth=1.2, gid="front")
    best = set(front)
    size = [81 if outcome in best else 25 for outcome in shown]
    color = [colors()[f"k{slot_of[outcome.cluster]}"] for outcome in shown]
    axes.scatter(x, y, size, color, linewidths=0, zorder=3, clip_on=False, gid="plans")
    what = "cost of a step" if priced else "memory of the fullest rank (GiB)"
    _titled(axes, "seconds per step", what)
    label = f"Step time against {what}: {len(outcomes)} plans, {len(front)} on the front"
    plans = [f"{outcome.cluster}: {outcome.plan}" for outcome in shown]
    return Markup('<figure class="wide">{}</figure>').format(
        _inline(figure, label, {"plans": plans})
    )


RIBBON_WIDTH, BAR = 960, 16
_MAX_RIBBONS = 400


def ribbon_chart(program: "AlignedPrograms") -> Markup:
    """Return two programs as bars above each other, with a ribbon for each run that corresponds.

    Bars have the color of what corresponds; what only one has is drawn in a color of its own. Of
    very many runs the longest are drawn.
    """
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    figure = _figure(RIBBON_WIDTH, 98)
    axes = _axes(figure, 26, 0, RIBBON_WIDTH - 4, 98)
    axes.set(xlim=(0, max(*program.nodes, 1)), ylim=(98, 0), xticks=[])
    top, bottom = 2, 78
    axes.set_yticks([top + BAR / 2, bottom + BAR / 2], ["A", "B"])
    runs = sorted(program.runs, key=lambda run: -run[2])[:_MAX_RIBBONS]
    bars = (
        (top, "accent", 0.55, "nodes of A", [(0, program.nodes[0])]),
        (bottom, "accent", 0.55, "nodes of B", [(0, program.nodes[1])]),
        (top, "k7", 1, "only in A", [(a, length) for a, b, length in runs if b < 0]),
        (bottom, "synthetic", 1, "only in B", [(b, length) for a, b, length in runs if a < 0]),
    )
    for y, color, alpha, gid, spans in bars:
        axes.broken_barh(spans, (y, BAR), color=colors()[color], alpha=alpha, linewidth=0, gid=gid)
    high, low = top + BAR, bottom
    middle = (high + low) / 2
    codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3, Path.CLOSEPOLY]
    bands = [
        Path(
            [(a, high), (a, middle), (b, middle), (b, low), (b + size, low), (b + size, middle),
             (a + size, middle), (a + size, high), (a, high)],
            codes,
        )
        for a, b, size in runs
        if min(a, b) >= 0
    ]  # fmt: skip
    color = colors()["accent"]
    axes.add_collection(
        PathCollection(bands, facecolors=color, alpha=0.22, linewidths=0, gid="aligned")
    )
    label = (
        f"{program.name}: {program.nodes[0]:,} nodes of A above {program.nodes[1]:,} of B, "
        f"{program.aligned:,} aligned"
    )
    return _framed(label, _inline(figure, label, {}), "chart ribbons")


STEP_X, STEP_Y, RADIUS, MARGIN = 18.0, 26.0, 5.5, 14.0
MAX_STRETCH = 3.2


def classes_by_size(pictures: Iterable[Picture]) -> dict[str, int]:
    """Return the color of each node class, the most frequent first; the rest share the last.

    One table for all pictures, so that a color means the same everywhere.
    """
    counts = Counter(name for picture in pictures for name in picture.class_N)
    names = sorted(counts, key=lambda name: (-counts[name], name))
    return {name: min(slot, CLASS_COLORS - 1) for slot, name in enumerate(names)}


def graph_chart(picture: Picture, slot_of: dict[str, int]) -> Markup:
    """Return the drawing of a graph, layers from top to bottom.

    Raises:
        GraphError: If the graph has a cycle.
    """
    dag = picture.dag
    edge_index_2E = dag.edge_index_2E.numpy()
    layout = layered_layout(dag.num_nodes, edge_index_2E, layer_N=dag.layer_N.numpy())
    # Deep graphs are drawn with less air between layers, so that the page stays readable.
    step_y = float(np.clip(MAX_STRETCH * STEP_X * layout.width / max(layout.height, 1), 15, STEP_Y))
    width = 2 * MARGIN + STEP_X * layout.width
    height = 2 * MARGIN + step_y * max(layout.height - 1, 0)
    figure = _figure(width, height)
    axes = _axes(
        figure, MARGIN, MARGIN, max(width - MARGIN, MARGIN + 1), max(height - MARGIN, MARGIN + 1)
    )
    axes.set_axis_off()
    axes.set(xlim=(0, max(layout.width, 1 / STEP_X)), ylim=(max(layout.height - 1, 0.05), 0))
    draw_edges(axes, edge_index_2E, layout, color=f"{colors()['soft']}80")
    for edges in axes.collections:
        edges.set_clip_on(False)
    color = [colors()[f"k{slot_of[name]}"] for name in picture.class_N]
    axes.scatter(
        layout.x_N, layout.layer_N, (2 * RADIUS) ** 2, color, edgecolors=colors()["card"],
        linewidths=1, zorder=2, clip_on=False, gid="nodes",
    )  # fmt: skip
    facts = f"{dag.num_nodes} nodes, {dag.num_edges} edges, {layout.height} layers"
    # Narrow graphs keep their natural size; wide ones shrink to the column.
    style = f"max-width:{width * 1.5:.0f}px"
    drawn = _inline(figure, f"{picture.title}: {facts}", {"nodes": picture.label_N}, style)
    return _framed(Markup("{} <span>{}</span>").format(picture.title, facts), drawn, "dag")
