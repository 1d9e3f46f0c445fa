"""The site in a real headless Chromium: two widths, light and dark, nothing sticks out, nothing complains."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import BROWSER, DRIVER, NEEDED, Page

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (BROWSER and DRIVER), reason=NEEDED)]
WIDTHS = (390, 1280)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    opened = Page(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.driver.quit()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_and_are_quiet(site: Path, browser: Page, width: int, dark: bool) -> None:
    chosen = {"index.html", "results.html", "guides/robot.html", "guides/deploy.html", "chip.html", "search.html"}
    all_pages = {str(path.relative_to(site)) for path in site.rglob("*.html") if path.name != "page.html"}
    assert chosen <= all_pages
    wrong = []
    for page in sorted(all_pages if not dark else chosen):  # what sticks out does so in both colours
        browser.open(site / page, (width, 900), dark, touch=width < 600)
        wide = browser.js("return document.documentElement.scrollWidth")
        said = [entry["message"] for entry in browser.driver.get_log("browser")]
        fetched = [url for url in browser.requests() if not url.startswith("file:")]
        if wide > width or said or fetched:
            wrong.append((page, wide, said, fetched))
        if page in chosen:
            browser.shoot(f"site-{page.replace('/', '-')}-{width}-{'dark' if dark else 'light'}")
    assert wrong == []
    background = browser.js("return getComputedStyle(document.body).backgroundColor")
    channels = [int(part) for part in background.removeprefix("rgb(").rstrip(")").split(",")]
    assert (max(channels) < 80) == dark
