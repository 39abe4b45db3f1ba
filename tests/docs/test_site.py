"""The built site (`make docs`): whole, and without anything from another host."""

import html.parser
import json
import re

import pytest

import pages
from pages import ROOT

SITE = ROOT / "build/site"
HTML = sorted(SITE.rglob("*.html"))


class Page(html.parser.HTMLParser):
    """What a browser fetches for a page, where its links lead, what ids it has."""

    def __init__(self, text):
        super().__init__()
        self.fetched, self.links, self.ids = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids.add(given.get("id"))
        if tag == "a":
            self.links.append(given.get("href"))
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.fetched.append(given.get("href"))
        self.fetched += [given[name] for name in ("src", "srcset", "poster", "data", "xlink:href") if given.get(name)]
        self.fetched += re.findall(r"url\(([^)]*)\)", given.get("style") or "")


def test_every_page_is_there():
    assert {page.stem for page in HTML} >= {page.stem for page in pages.all_pages() if page.parent == ROOT / "docs"}


@pytest.mark.parametrize("file", HTML, ids=lambda file: file.stem)
def test_a_page_fetches_nothing_from_another_host(file):
    page = Page(file.read_text())
    assert page.fetched
    for address in page.fetched:
        assert not re.match(r"([a-z]+:)?//", address), address
        if file.stem != "404" and not address.startswith("data:"):  # 404.html is served for any address, so its own are absolute
            assert (file.parent / address.split("?")[0].split("#")[0]).exists(), address


def test_no_style_fetches_from_another_host():
    for style in SITE.rglob("*.css"):
        assert not re.search(r"(url\(|@import )['\"]?([a-z]+:)?//", style.read_text()), style


@pytest.mark.parametrize("file", HTML, ids=lambda file: file.stem)
def test_links_within_the_site_lead_somewhere(file):
    for link in Page(file.read_text()).links:
        if link and file.stem != "404" and not re.match(r"[a-z]+:", link):
            path, _, anchor = link.partition("#")
            target = (file.parent / path).resolve() if path else file
            assert target.exists(), link
            if anchor and target.suffix == ".html":
                assert anchor in Page(target.read_text()).ids or anchor == "__codelineno", link


def test_every_page_can_be_found_in_the_search():
    index = json.loads((SITE / "search/search_index.json").read_text())
    found = {entry["location"].split("#")[0] for entry in index["docs"]}
    assert {page.name for page in HTML} - {"404.html", "index.html"} <= found and len(index["docs"]) > 100


def test_no_star_of_the_text_became_emphasis():
    """Two stars on a line, as in PET_* and mig-*, are: in code they are not, nor behind a backslash."""
    for file in HTML:
        odd = re.findall(r"<em>(?!\w)[^<]*</em>", file.read_text())
        assert not odd, f"{file.name}: {odd}"


def test_no_mark_of_the_runner_is_seen():
    for file in HTML:
        shown = re.sub(r"<!--.*?-->", "", file.read_text(), flags=re.S)
        assert not re.search(r"&lt;!-- (run|not run|file):", shown), file.name
