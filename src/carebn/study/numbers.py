"""Numbers as text: the same one reads the same in a terminal, on the page and in Markdown."""

from decimal import ROUND_HALF_UP, Decimal

MISSING = "–"


def decimals_of(value: float) -> int:
    """As many as a score of this size is told with. The script of the page has the same rule."""
    size = abs(value)
    return 0 if size >= 1000 else 1 if size >= 10 else 2 if size >= 1 else 3


def spelled(value: float | None, decimals: int | None = None) -> str:
    """Rounded once, from the number itself, and halves away from zero, as a browser does; never "-0"."""
    if value is None:
        return MISSING
    if not abs(value) < 1e15:  # no score; all its digits would fill the page
        return f"{value:g}"
    places = decimals_of(value) if decimals is None else decimals
    rounded = Decimal(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    return f"{abs(rounded) if rounded == 0 else rounded:f}"


def with_spread(mean: float, std: float | None, decimals: int | None = None) -> str:
    """``mean ± std``, both with the digits that suit the mean; without a spread, the mean."""
    places = decimals_of(mean) if decimals is None else decimals
    text = spelled(mean, places)
    return text if std is None else f"{text} ± {spelled(std, places)}"


def per_cent(value: float) -> str:
    """A difference with its sign; small ones with a digit more, and nothing has no sign."""
    places = 1 if abs(value) >= 0.1 else 2
    text = spelled(value, places)
    if float(text) == 0:
        return "0.0 %"
    return f"{'−' if value < 0 else '+'}{text.removeprefix('-')} %"
