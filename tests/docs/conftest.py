import importlib.util
from pathlib import Path

import pytest
from site_build import ROOT, build_site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("sphinx", "myst_nb", "furo"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed; '.[docs]' brings it")
    if not (ROOT / "docs" / "conf.py").exists():
        pytest.skip("the pages are in the repository")
    out = tmp_path_factory.mktemp("site")
    complaints = build_site(out)
    assert complaints == ""
    return out / "html"
