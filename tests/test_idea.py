"""The pictures of docs/idea.md are what the code computes, and its text says what they show."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DOCS = Path(__file__).parent.parent / "docs"
pytestmark = pytest.mark.skipif(not (DOCS / "idea.md").exists(), reason="the pictures are in the repository only")


@pytest.fixture(scope="module")
def idea() -> Any:
    spec = importlib.util.spec_from_file_location("draw_idea", DOCS / "draw_idea.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def shown(idea: Any) -> dict[str, Any]:
    return {name: idea.shown((DOCS / "figures" / f"{name}.svg").read_text()) for name in idea.PICTURES}


@pytest.mark.parametrize("name", ["noise-and-delay", "gain", "recalibration", "wasserstein"])
def test_a_picture_shows_what_the_code_computes(idea: Any, shown: dict[str, Any], name: str) -> None:
    numbers, _ = idea.PICTURES[name]
    assert idea.alike(numbers(), shown[name]), "python docs/draw_idea.py"


def test_every_picture_is_drawn_and_carries_its_numbers(
    idea: Any, shown: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {name: (lambda name=name: shown[name], picture) for name, (_, picture) in idea.PICTURES.items()}
    monkeypatch.setattr(idea, "PICTURES", known)
    idea.draw(tmp_path)
    for name in known:
        assert idea.shown((tmp_path / f"{name}.svg").read_text()) == shown[name]


def test_numbers_that_differ_are_seen(idea: Any) -> None:
    assert idea.alike({"a": [1.0, 2.0]}, {"a": [1.0, 2.0001]})
    assert not idea.alike({"a": [1.0, 2.0]}, {"a": [1.0, 2.1]})
    assert not idea.alike({"a": [1.0, 2.0]}, {"a": [1.0]})
    assert not idea.alike({"a": 1.0}, {"b": 1.0})


def test_the_text_says_what_the_pictures_show(shown: dict[str, Any]) -> None:
    text = (DOCS / "idea.md").read_text()
    errors, gain, mended = shown["noise-and-delay"], shown["gain"], shown["recalibration"]
    for rule, rest in errors["error at rest"].items():
        assert f"| {rule} | {rest:.4f} | {errors['error on the move'][rule]:.4f} |" in text
    assert (
        f"rises to {gain['on the move']:.2f} on average. At rest it falls to {gain['at rest']:.2f} on average" in text
    )
    assert f"from {mended['just before']:.4f} to {mended['just after']:.4f}" in text
    assert f"One batch later it is {mended['one batch later']:.4f} again" in text
    for method, of in shown["wasserstein"].items():
        assert f"| {method} | {' | '.join(f'{x:.4f}' for x in of['mean of layers'])} |" in text


def test_and_what_it_concludes_holds(shown: dict[str, Any]) -> None:
    errors, gain = shown["noise-and-delay"], shown["gain"]
    rest, move = errors["error at rest"], errors["error on the move"]
    assert min(move, key=move.get) == max(rest, key=rest.get) == "CaRe's gain"
    assert errors["one feature"]["average, 0.01"][-1] < 5  # of 6: not arrived
    assert gain["at rest"] < gain["on the move"] - 0.2
    assert min(gain["mean"][10:]) > 0.35
    of = {method: np.array(data["layers"]) for method, data in shown["wasserstein"].items()}
    spread = np.ptp([layers[:2].mean(1) for layers in of.values()], axis=0)
    assert (spread < 0.1 * of["bn"][:2].mean(1)).all()  # about equally far off
    others = np.mean([layers[2] for method, layers in of.items() if method != "bn"], axis=0)
    behind = of["bn"][2] - others
    assert behind[:5].mean() > 0
    assert behind[-5:].mean() > 0


def test_on_a_slower_path_the_gain_does_not_win(idea: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slower = np.interp(np.arange(idea.STEPS), [99, 159], [0.0, 3.0])  # a twentieth of a deviation a batch, not a fifth
    monkeypatch.setattr(idea, "truth", lambda: slower)
    monkeypatch.setattr(idea, "BATCH", 32)
    off = {
        name: idea.error(idea.followed(idea.RULES[name])[0])[100:160].mean() for name in ("average, 0.5", "CaRe's gain")
    }
    assert off["average, 0.5"] < off["CaRe's gain"]
