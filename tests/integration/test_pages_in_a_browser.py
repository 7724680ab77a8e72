"""Every kind of page in headless Chromium: what a reader of it sees, hears and reaches.

``make pages-test`` installs what is needed and runs these.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import axe_script, browser
from small_reports import small_report
from small_studies import study

from layerdag.cli.main import main
from layerdag.report.exploration import write_exploration
from layerdag.report.page import write_report
from layerdag.workloads.exploration import explore

pytestmark = pytest.mark.slow

KINDS = ("report", "public", "exploration", "difference", "graph")
WIDE, NARROW = (1280, 860), (390, 844)
REACHABLE = "a[href], summary, button, input, select, [tabindex='0']"
TABS = 400


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """Write a page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    content = small_report()
    write_report(content, folder / "report.html")
    write_report(replace(content, neighbors=(), real_structure=None), folder / "public.html")
    write_exploration(explore(study()), folder / "exploration.html")
    examples = Path(__file__).resolve().parents[2] / "data" / "examples"
    pair = [str(examples / name) for name in ("pp_gpt", "ddp_mlp")]
    main(["diff", *pair, "--simulate", "small", "--html", str(folder / "difference.html")])
    main(["view", pair[0], "--simulate", "small", "--out", str(folder / "graph.html")])
    return {kind: folder / f"{kind}.html" for kind in KINDS}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Return a browser for all tests."""
    with browser() as running:
        yield running


@pytest.fixture
def opened(chromium, pages) -> Iterator[Any]:
    """Return a function that opens a page; what the console says ends in a list of the page."""
    contexts = []

    def open_page(kind: str, size: tuple[int, int] = WIDE, scheme: str = "light") -> Any:
        context = chromium.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, bypass_csp=True
        )
        contexts.append(context)
        page = context.new_page()
        page.said = []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.said.append(request.url))
        page.goto(pages[kind].as_uri())
        page.wait_for_timeout(200)
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_loaded_complained_of_or_wider_than_the_screen(opened, pages, kind, size):
    page = opened(kind, size)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.said == [pages[kind].as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.evaluate(_STICKING_OUT) == []


_STICKING_OUT = """() => [...document.querySelectorAll('body *')].filter((one) => {
  if (one.closest('.scroll') || one.closest('svg') || one.closest('.skip')) return false;
  const box = one.getBoundingClientRect();
  return box.width > 1 && (box.right > innerWidth + 1 || box.left < -1);
}).map((one) => one.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing(opened, kind, size, scheme):
    page = opened(kind, size, scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.evaluate(axe_script())
    found = page.evaluate("axe.run()")
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_keyboard_reaches_every_control(opened, kind):
    page = opened(kind)
    page.evaluate(
        """(query) => [...document.querySelectorAll(query)]
          .filter((one) => one.checkVisibility({ contentVisibilityAuto: true }))
          .forEach((one, i) => { one.dataset.control = i; })""",
        REACHABLE,
    )
    wanted = page.evaluate("document.querySelectorAll('[data-control]').length")
    seen = set()
    for _ in range(TABS):
        page.keyboard.press("Tab")
        at = page.evaluate("document.activeElement.dataset.control")
        if at is None and len(seen) >= wanted:
            break
        seen.add(at)
    assert len(seen - {None}) == wanted


@pytest.mark.parametrize("kind", ["report", "difference", "exploration"])
def test_what_is_folded_opens_by_keyboard_and_is_printed(opened, kind):
    page = opened(kind)
    hidden = "[...document.querySelectorAll('details td')].filter((one) => !one.checkVisibility())"
    assert page.evaluate(f"{hidden}.length") > 0
    page.emulate_media(media="print")
    assert page.evaluate(f"{hidden}.length") == 0
    assert page.evaluate("document.querySelector('details td').getBoundingClientRect().height") > 5
    page.emulate_media(media="screen")
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('details td').checkVisibility()")


def test_paper_is_white_even_if_the_screen_was_dark(opened):
    page = opened("report", scheme="dark")
    color = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(color) != "rgb(255, 255, 255)"
    page.emulate_media(media="print")
    assert page.evaluate(color) == "rgb(255, 255, 255)"


def test_the_verdicts_come_first_and_lead_to_what_shows_why(opened):
    page = opened("report", NARROW)
    first = page.locator("main > section").first
    assert first.get_attribute("id") == "verdict"
    assert page.locator(".answer .word").first.bounding_box()["y"] < NARROW[1]
    page.locator(".answer a").first.click()
    page.wait_for_timeout(700)
    assert page.evaluate(
        "Math.abs(document.querySelector(location.hash).getBoundingClientRect().top) < 900"
    )


def pixels(page: Any, canvas: str = "canvas") -> str:
    """Return what a canvas shows, once it is drawn."""
    page.wait_for_timeout(100)
    return page.evaluate(f"document.getElementById('{canvas}').toDataURL()")


def test_a_graph_switches_between_blocks_once_and_all_nodes(opened):
    page = opened("graph")
    assert "145 with each repeated block once" in page.locator("#facts").inner_text()
    assert page.locator("#level").input_value() == "rolled"
    before = pixels(page)
    page.locator("#level").select_option("whole")
    assert page.evaluate("graph.x.length") == 230
    assert pixels(page) != before
    page.locator("#level").select_option("rolled")
    assert page.evaluate("graph.x.length") == 145
    assert page.said[1:] == []


def test_the_critical_path_and_times_lie_over_the_graph(opened):
    page = opened("graph")
    with_path = pixels(page)
    page.locator("#path").uncheck()
    assert pixels(page) != with_path
    by_kind = pixels(page)
    page.locator("#color").select_option("time")
    assert pixels(page) != by_kind
    assert page.locator("#legend").inner_text().split("\n") == ["no time", "most time"]
    assert "simulated" in page.locator("#source").inner_text()


def test_a_fitted_graph_is_seen_whole_on_every_screen(opened):
    for size in (WIDE, NARROW):
        page = opened("graph", size)
        outside = page.evaluate(
            """[...graph.x.keys()].filter((n) => sx(graph.x[n]) < 0 || sy(graph.y[n]) < 0 ||
              sx(graph.x[n]) > innerWidth || sy(graph.y[n]) > innerHeight).length"""
        )
        assert outside == 0


def test_the_overview_moves_the_graph_and_the_keyboard_chooses_nodes(opened):
    page = opened("graph")
    box = page.locator("#map").bounding_box()
    before = page.evaluate("[left, top_]")
    page.mouse.click(box["x"] + 20, box["y"] + 20)
    assert page.evaluate("[left, top_]") != before
    page.locator("#canvas").focus()
    page.keyboard.press("n")
    assert page.locator("#node h2").inner_text()
    assert "critical path" in page.locator("#node").inner_text()
    page.keyboard.press("Escape")
    assert not page.locator("#node").is_visible()


def test_search_says_how_many_match_and_goes_to_them(opened):
    page = opened("graph")
    page.locator("#search").fill("bmm")
    assert page.locator("#found").inner_text().endswith("matches")
    page.keyboard.press("Enter")
    assert "bmm" in page.locator("#node h2").inner_text()
