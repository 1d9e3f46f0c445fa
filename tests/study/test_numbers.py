"""Numbers as text."""

import pytest

from carebn.study.numbers import per_cent, spelled, with_spread


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9343.48, "9343"), (-1324.94, "-1325"), (999.94, "999.9"), (12.25, "12.3"), (-12.25, "-12.3"), (1.005, "1.00"),
        (0.0625, "0.063"), (0.0, "0.000"), (-0.0001, "0.000"), (None, "–"), (1e300, "1e+300"), (float("inf"), "inf"),
    ],
)  # fmt: skip
def test_as_many_digits_as_suit_the_size(value: float | None, text: str) -> None:
    assert spelled(value) == text


def test_a_spread_has_the_digits_of_its_mean() -> None:
    assert with_spread(9343.48, 0.49) == "9343 ± 0"
    assert with_spread(23.456, 1234.5) == "23.5 ± 1234.5"
    assert with_spread(16.479, 0.5, 2) == "16.48 ± 0.50"
    assert with_spread(16.479, None, 2) == "16.48"


@pytest.mark.parametrize(
    ("value", "text"),
    [(10.0, "+10.0 %"), (-4.16, "−4.2 %"), (-0.0163, "−0.02 %"), (-0.0049, "0.0 %"), (0.0, "0.0 %"), (0.1, "+0.1 %")],
)
def test_differences(value: float, text: str) -> None:
    assert per_cent(value) == text
