"""docs/api: every public name has a docstring of its own and stands on the page of its module, and no other does."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "api"
MODULES = [
    "carebn", "carebn.norm", "carebn.neuron", "carebn.network", "carebn.algorithm", "carebn.deploy", "carebn.kernels",
    "carebn.conversion",
]  # fmt: skip
INTEGRATIONS = ["carebn.integrations.sb3", "carebn.integrations.crossq"]
DIRECTIVE = re.compile(r"^\.\. (?:auto)?(class|function|data):: (\S+)$", re.M)

pytestmark = pytest.mark.skipif(not PAGES.exists(), reason="the pages are in the repository, not in a package")


def page_of(module: str) -> str:
    return (PAGES / f"{module.removeprefix('carebn.').partition('.')[0]}.md").read_text()


def exported(module: str) -> set[str]:
    """What a user may import: ``__all__``, and where there is none what the module itself defines."""
    room = import_module(module)
    if hasattr(room, "__all__"):
        return set(room.__all__)
    own = {name for name, thing in vars(room).items() if getattr(thing, "__module__", None) == module}
    return {name for name in own if not name.startswith("_")}


def on_page(module: str) -> dict[str, str]:
    """Names of this module that its page shows, with what they are shown as."""
    return {
        path.rpartition(".")[2]: kind
        for kind, path in DIRECTIVE.findall(page_of(module))
        if path.rpartition(".")[0] == module
    }


def own_docstring(thing: Any) -> str:
    """Not one that is inherited, nor one that Python makes of a class's fields."""
    text = thing.__dict__.get("__doc__") if inspect.isclass(thing) else thing.__doc__
    made = inspect.isclass(thing) and (text or "").startswith(f"{thing.__name__}(")
    return "" if made else text or ""


@pytest.mark.parametrize("module", [*MODULES, *INTEGRATIONS])
def test_all_that_is_exported_is_on_the_page_and_has_a_docstring(module: str) -> None:
    if module in INTEGRATIONS:
        pytest.importorskip("sb3_contrib" if module.endswith("crossq") else "stable_baselines3")
    shown = on_page(module)
    constants = {name for name in exported(module) if name.isupper() and module in INTEGRATIONS}  # its own defaults
    assert shown.keys() == exported(module) - {"__version__"} - constants
    source = inspect.getsource(import_module(module))
    for name, kind in shown.items():
        thing = getattr(import_module(module), name)
        assert kind == ("class" if inspect.isclass(thing) else "function" if inspect.isroutine(thing) else "data"), name
        if kind == "data":  # documented by a comment, which may lie in the module that it comes from
            where = source if re.search(rf"^{name}\b.*=", source, re.M) else _all_sources(module)
            assert re.search(rf"^#: .+\n{name}\b", where, re.M), f"{name} needs a comment that begins with #:"
        else:
            assert len(own_docstring(thing)) > 20, f"{module}.{name} has no docstring of its own"


def _all_sources(module: str) -> str:
    home = import_module(module).__file__
    assert home is not None
    return "\n".join(path.read_text() for path in Path(home).parent.glob("*.py"))


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_what_a_page_names_exists(page: Path) -> None:
    for _, path in DIRECTIVE.findall(page.read_text()):
        module, _, name = path.rpartition(".")
        assert hasattr(import_module(module), name), path


def test_the_first_page_leads_to_all_others() -> None:
    text = (PAGES / "index.md").read_text()
    assert set(re.findall(r"\((\w+)\.md\)", text)) == {path.stem for path in PAGES.glob("*.md")} - {"index"}
