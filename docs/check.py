"""Looks at every page of the built site in a browser: python docs/check.py build/docs (after `make docs`).

Each page has at most 12,000 pixels at a width of 1,280 and does not scroll sideways at 390. It has one title, one main
landmark, alternative texts, and readable contrast in light and dark; there is no error in the console, and nothing is
loaded from elsewhere. Needs playwright and Chromium.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

TALLEST = 12_000
LOOK = """() => {
  const luminance = ([r, g, b]) => [r, g, b].map(c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const colour = text => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const found = colour(getComputedStyle(e).backgroundColor);
      if (found[3] > .5) return found;
    }
    return [255, 255, 255, 1];
  };
  const faint = [];
  for (const e of document.querySelectorAll('article *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    if (e.closest('svg, math, .headerlink, .visually-hidden')) continue;
    const style = getComputedStyle(e);
    if (!e.offsetParent || style.visibility === 'hidden') continue;
    const [a, b] = [luminance(colour(style.color)), luminance(behind(e))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    const least = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
    if (ratio < least) faint.push(`${e.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return {
    height: document.documentElement.scrollHeight,
    across: document.documentElement.scrollWidth - innerWidth,
    titles: document.querySelectorAll('h1').length,
    main: document.querySelectorAll('main, [role=main]').length,
    unnamed: [...document.querySelectorAll('img')].filter(i => !i.hasAttribute('alt')).map(i => i.src),
    broken: [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src),
    language: document.documentElement.lang,
    faint,
  };
}"""


def problems(site: Path) -> list[str]:
    """Returns what is wrong, one line each."""
    browser_file = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=browser_file, args=["--no-sandbox"])
        return [*looked(browser, site, "light", 1280), *looked(browser, site, "dark", 390)]


def looked(browser: Any, site: Path, scheme: str, width: int) -> list[str]:
    """Returns what is wrong on a screen of this width."""
    found: list[str] = []
    page = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme).new_page()
    page.on("console", lambda said: found.append(f"{page.url}: {said.text}") if said.type == "error" else None)
    page.on("request", lambda asked: None if local(asked.url) else found.append(f"{page.url}: loads {asked.url}"))
    for file in sorted(set(site.rglob("*.html")) - {site / "search.html"}):  # whose title comes with a query
        page.goto(f"file://{file.resolve()}")
        found += [f"{file.relative_to(site)}: {told}" for told in wrong(page.evaluate(LOOK), width)]
    return found


def local(address: str) -> bool:
    return address.startswith(("file:", "data:", "blob:"))


def wrong(seen: dict[str, Any], width: int) -> list[str]:
    """Returns what is wrong with a page."""
    told = []
    if width == 1280 and seen["height"] > TALLEST:
        told.append(f"{seen['height']} pixels long")
    if seen["across"] > 0:
        told.append(f"scrolls sideways by {seen['across']} pixels at a width of {width}")
    if seen["titles"] != 1 or seen["main"] != 1 or not seen["language"]:
        told.append(f"{seen['titles']} titles, {seen['main']} main landmarks, language {seen['language']!r}")
    told += [f"no alternative text: {image}" for image in seen["unnamed"]]
    told += [f"no such image: {image}" for image in seen["broken"]]
    return told + [f"too little contrast: {text}" for text in seen["faint"][:3]]


if __name__ == "__main__":
    site = Path(sys.argv[1])
    wrongs = problems(site)
    print("\n".join(wrongs) or f"{len(list(site.rglob('*.html')))} pages, nothing wrong")
    sys.exit(bool(wrongs))
