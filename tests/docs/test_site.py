"""The documentation site: builds without a warning, no link leads nowhere, nothing is loaded from the network."""

import re
import subprocess
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from site_build import ROOT

pytestmark = pytest.mark.slow
REPORT = "page.html"  # makes its places itself; tests/study/test_report_browser.py opens it
LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"), ("object", "data")}


class Page(HTMLParser):
    """What a page links to, what it loads, and which places in it have a name."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev", "index", "search", "author"):
            self.loaded.append(given["href"])
        self.loaded += [given[name] for kind, name in LOADS if kind == tag and name in given]


@cache
def read(path: Path) -> Page:
    return Page(path)


def test_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    broken = []
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for path in pages:
        for link in read(path).links + read(path).loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            here = path.relative_to(site)
            if not target.is_file():
                broken.append(f"{here}: {link}")
            elif (
                parts.fragment
                and path.name != REPORT
                and target.suffix == ".html"
                and unquote(parts.fragment) not in read(target).names
            ):
                broken.append(f"{here}: {link} (no such place)")
    assert [link for link in broken if not link.endswith(": #")] == []


def test_nothing_is_loaded_from_the_network(site: Path) -> None:
    loaded = [url for path in site.rglob("*.html") for url in read(path).loaded]
    assert [url for url in loaded if urlsplit(url).netloc or urlsplit(url).scheme not in ("", "data")] == []
    styles = [
        (path.name, url) for path in site.rglob("*.css") for url in re.findall(r"url\(([^)]+)\)", path.read_text())
    ]
    assert [style for style in styles if "//" in style[1].partition(",")[0]] == []
    assert [
        path.name
        for path in site.rglob("*.css")
        if re.search(r"@import\s+(url\()?['\"]?(https?:)?//", path.read_text())
    ] == []


def test_links_in_the_readme_and_beside_it_lead_somewhere() -> None:
    """On GitHub, where these pages are read as they are."""
    broken = []
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        text = (ROOT / name).read_text()
        for link in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text):
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = ROOT / parts.path
            if not target.exists() or (parts.fragment and parts.fragment not in slugs(target)):
                broken.append(f"{name}: {link}")
    assert broken == []


def slugs(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_page_that_is_missing_from_the_contents_or_a_dead_link_is_noticed(site: Path, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#x">b</a><script src="https://example.org/x.js"></script>')
    (tmp_path / "b.html").write_text('<p id="y">')
    page = read(tmp_path / "a.html")
    assert page.links == ["b.html#x"]
    assert page.loaded == ["https://example.org/x.js"]
    assert "x" not in read(tmp_path / "b.html").names


def test_make_docs_says_where_it_is() -> None:
    done = subprocess.run(["make", "-n", "docs"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "build/docs/index.html" in done.stdout
