"""The built site in a real browser: each page wide and narrow, and the search. SCREENSHOTS=FOLDER keeps pictures, to be looked at."""

import functools
import http.server
import os
import pathlib
import threading

import pytest

import browser
from pages import ROOT

SITE = ROOT / "build/site"
WINDOWS = {"wide": (1440, 1600), "narrow": (390, 1200)}  # a desk, a phone
PAGES = sorted(page.stem for page in SITE.glob("*.html"))

pytestmark = pytest.mark.skipif(not browser.PROGRAM, reason="no chromium on PATH; Debian's package is chromium")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module")
def window():
    with browser.Browser() as made:
        yield made


def keep(window, name):
    if folder := os.environ.get("SCREENSHOTS"):
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        window.screenshot(pathlib.Path(folder) / f"{name}.png")


@pytest.mark.parametrize("size", WINDOWS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_shown(site, window, page, size):
    window.resize(*WINDOWS[size])
    window.open(f"{site}/{page}.html")
    keep(window, f"{page}-{size}")
    assert window.value("document.querySelector('h1').textContent")
    assert window.value("document.documentElement.scrollWidth") <= WINDOWS[size][0], "the page is wider than the window"
    broken = window.value("[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)")
    assert not broken
    assert window.value("getComputedStyle(document.querySelector('.md-header')).backgroundColor") != "rgba(0, 0, 0, 0)", "the style is not there"
    elsewhere = [address for address in window.requested() if not address.startswith((site, "data:"))]
    assert not elsewhere and not window.complaints()


def test_the_search_finds(site, window):
    window.resize(*WINDOWS["wide"])
    window.open(f"{site}/index.html?q=stallSeconds")
    window.wait("document.querySelectorAll('.md-search-result__item').length > 0")
    keep(window, "search")
    found = window.value("[...document.querySelectorAll('.md-search-result__item a')].map(a => a.pathname)")
    assert "/deadlines.html" in found and "/api.html" in found
