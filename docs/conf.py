"""The documentation site: Sphinx, with the Markdown pages of this directory as they are. ``make docs`` builds it."""

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

TOP = Path(__file__).parent.parent

project = "carebn"
author = "the carebn contributors"
copyright = author
[release] = re.findall(r'^__version__ = "(.+)"', (TOP / "src/carebn/__init__.py").read_text(), re.M)

extensions = ["myst_nb", "sphinx.ext.autodoc"]  # Markdown and notebooks; reference pages from docstrings
myst_heading_anchors = 4  # links such as scaling.md#tuning, by the same rule as on GitHub
nb_execution_mode = "off"  # notebooks are shown as they were saved
autodoc_typehints = "description"
autodoc_member_order = "bysource"
nitpicky = True  # what leads nowhere is a warning,
nitpick_ignore_regex = [(r"py:.*", r".*")]  # but for types in signatures: other packages', and ours without a page

html_theme = "furo"
html_title = f"carebn {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
highlight_language = "none"  # what is not named is no program
pygments_style, pygments_dark_style = "friendly", "monokai"

# Pages that lie at the top of the repository, where people look for them, and are pages of the site too.
ABOVE = {"contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}


def read_page(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Links between docs/ and the top of the repository become links between pages of the site."""
    text = source[0]
    if docname in ABOVE:
        text = (TOP / ABOVE[docname]).read_text().replace("](docs/", "](")
        for page, name in ABOVE.items():
            text = text.replace(f"]({name}", f"]({page}.md")
    # the report page is a page of its own, to be opened and not to be downloaded
    text = re.sub(r"\[([^]]+)\]\((results/page\.html)\)", r'<a href="\2">\1</a>', text)
    for page, name in ABOVE.items():
        text = re.sub(rf"\]\(((?:\.\./)*)\.\./{name}", rf"](\g<1>{page}.md", text)
    source[0] = text


def copy_report(app: Sphinx, _error: Exception | None) -> None:
    (app.outdir / "results").mkdir(exist_ok=True)
    shutil.copy(TOP / "docs/results/page.html", app.outdir / "results")


def setup(app: Sphinx) -> None:
    app.connect("source-read", read_page)
    app.connect("build-finished", copy_report)
