"""Tests of page accessibility: contrast in both modes, print, and screen readers."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hpcbench.present.document import Chapter, Document, Sentences
from hpcbench.present.page import write

_CONTRASTS = """
for (const details of document.querySelectorAll("details")) details.open = true;
const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
function rgba(colour) {  // whatever the notation
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
}
function luminance(colour) {  // WCAG 2.2
  const [r, g, b] = colour.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function ground(element) {
  for (let e = element; e; e = e.parentElement) {
    const [r, g, b, alpha] = rgba(getComputedStyle(e).backgroundColor);
    if (alpha === 255) return [r, g, b];
    if (alpha) throw new Error("a ground that shines through: measure it another way");
  }
  throw new Error("no ground");
}
const found = [];
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  const style = getComputedStyle(element);
  if (!texts.currentNode.data.trim() || element.matches("script, option") || !element.getClientRects().length) continue;
  const [r, g, b, alpha] = rgba(element.closest("svg") ? style.fill : style.color);
  if (alpha !== 255 || style.opacity !== "1") throw new Error("a text that is shone through");
  const pair = [luminance([r, g, b]), luminance(ground(element))].sort((x, y) => y - x);
  found.push([(pair[0] + 0.05) / (pair[1] + 0.05), texts.currentNode.data.trim().slice(0, 40)]);
}
return found;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser: Any, page: Path, scheme: str) -> None:
    browser.open(page, scheme=scheme)
    ground = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (int(ground.removeprefix("rgb(").split(",")[0]) < 64) == (scheme == "dark")
    result = browser.run(_CONTRASTS)
    assert len(result) > 100
    assert min(result)[0] >= 4.5, min(result)
    texts = {text for _, text in result}
    assert {"faster, loss no worse", "failed", "Trouble", "samples/s", "baseline", "step"} <= texts, (
        "not all was measured"
    )


def test_paper_shows_no_controls_and_black_on_white(browser: Any, page: Path) -> None:
    browser.open(page, scheme="dark", media="print")
    script = "return [...document.querySelectorAll(arguments[0])].filter((e) => e.getClientRects().length).length"
    assert browser.run(script, "form, input, select, nav, .skip") == 0
    assert browser.run(script, "tbody tr") >= 9 and browser.run(script, "svg") == 1
    colours = browser.run("const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]")
    assert colours == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
    assert browser.run("return getComputedStyle(document.querySelector('.scroll')).overflow") == "visible"


def test_paper_shows_what_is_folded_on_the_screen(browser: Any, tmp_path: Path) -> None:
    lines = Sentences(tuple(f"Note {k}." for k in range(20)), "warning")
    path = tmp_path / "folded.html"
    path.write_text(write(Document("d", (Chapter("c", "", (lines, replace(lines, tone="", group="Method"))),))))
    script = """return [...document.querySelectorAll('li')].filter(
        (e) => e.textContent.startsWith('Note') && e.checkVisibility({contentVisibilityAuto: true})).length"""
    shown = []
    for medium in ("screen", "print"):
        browser.open(path, media=medium)
        shown.append(browser.run(script))
    assert shown == [12, 40]


def test_what_a_screen_reader_meets_has_a_name(browser: Any, page: Path) -> None:
    browser.open(page)
    browser.run("document.querySelector('nav details').open = true")
    nodes = browser.accessible()
    named = {"button", "link", "searchbox", "combobox", "table", "region", "image", "img", "navigation", "search"}
    assert [node for node in nodes if node["role"] in named and not node["name"].strip()] == []
    roles = {node["role"] for node in nodes}
    assert {"banner", "main", "contentinfo", "navigation", "search", "searchbox", "combobox", "table"} <= roles
    assert [node["name"] for node in nodes if node["role"] in ("image", "img")] == ["Loss against steps"]
    assert [node["name"] for node in nodes if node["role"] == "searchbox"] == ["Filter rows"]
    assert "samples/s" in {node["name"] for node in nodes if node["role"] == "button"}, "without the arrow"


def test_headings_stand_in_order(browser: Any, page: Path) -> None:
    browser.open(page)
    script = "return [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map((h) => Number(h.tagName[1]))"
    levels = browser.run(script)
    assert levels[0] == 1 and levels.count(1) == 1 and len(levels) > 8
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_tables_tell_what_their_headers_head(browser: Any, page: Path) -> None:
    browser.open(page)
    script = "return [...document.querySelectorAll('th')].map((th) => [th.scope, Boolean(th.closest('thead'))])"
    heads = browser.run(script)
    assert len(heads) > 20 and all(scope == ("col" if top else "row") for scope, top in heads)
    assert browser.run("return [...document.querySelectorAll('table[data-name]')].every((t) => t.caption)")


def test_ids_are_unique_and_each_link_within_the_page_leads_somewhere(browser: Any, page: Path) -> None:
    browser.open(page)
    ids = browser.run("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    script = "return [...document.querySelectorAll('[href^=\"#\"]')].map((e) => e.getAttribute('href').slice(1))"
    targets = browser.run(script)
    assert targets and set(targets) <= set(ids)
