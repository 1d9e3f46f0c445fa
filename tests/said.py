"""What a command said, and the one sentence that a user's mistake gets."""

from typing import NamedTuple


class Said(NamedTuple):
    code: int
    out: str
    err: str


def assert_one_sentence(said: Said) -> None:
    assert said.code == 1
    assert said.err.startswith("carebn: ")
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
