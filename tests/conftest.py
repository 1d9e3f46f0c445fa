"""What the tests of every room may need. That it lies here also lets them import ``abilities``."""

import os
from collections.abc import Iterator

import pytest
from abilities import BFLOAT16_PRODUCTS, obstacle


@pytest.fixture(scope="session")
def bfloat16_products() -> None:
    """For tests that make them: skipped where torch itself cannot."""
    why = obstacle(BFLOAT16_PRODUCTS)
    if why is not None:
        pytest.skip(f"torch cannot multiply in bfloat16 on this machine ({why})")


@pytest.fixture(autouse=True)
def environment_variables() -> Iterator[None]:
    """As they were before: the command line, called within the tests' own process, sets some for all it starts."""
    before = os.environ.copy()
    yield
    if os.environ.copy() != before:
        os.environ.clear()
        os.environ.update(before)
