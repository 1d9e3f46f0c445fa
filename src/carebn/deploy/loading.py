"""``carebn.deploy.load``: whatever ``carebn export --to numpy`` wrote, in floating point or in whole numbers."""

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from carebn.deploy.archive import opened
from carebn.deploy.graph import FORMAT, WHOLE_NUMBERS, PolicyGraph
from carebn.deploy.integer import IntegerPolicy
from carebn.deploy.runtime import DeployedPolicy


def load(path: Path | str, compiled: bool | None = None) -> DeployedPolicy | IntegerPolicy:
    """The policy that ``carebn export --to numpy`` wrote. Nothing in the file is executed.

    FileNotFoundError if there is none, ValueError if it is something else. ``compiled`` is for policies in floating
    point, as ``DeployedPolicy`` has it.
    """
    found = opened(path, _build)
    return found if isinstance(found, IntegerPolicy) else DeployedPolicy(found, compiled)


def _build(description: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> PolicyGraph | IntegerPolicy:
    if description.get("format") == FORMAT and description.get("version") == WHOLE_NUMBERS:
        return IntegerPolicy.build(description, arrays)
    return PolicyGraph.build(description, arrays)
