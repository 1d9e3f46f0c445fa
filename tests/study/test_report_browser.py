"""The report in a real headless Chromium: what is drawn, what pointer and finger do, and that nothing is fetched."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import BROWSER, DRIVER, NEEDED, Page
from fake_runs import write_converted_run, write_run
from tiny_sweep import ENVS, STEPS, train_tiny_sweep

from carebn.commands import report

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (BROWSER and DRIVER), reason=NEEDED)]
DESKTOP, PHONE = (1280, 900), (390, 844)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    opened = Page(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.driver.quit()


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of real runs."""
    directory = tmp_path_factory.mktemp("sweep")
    train_tiny_sweep(directory / "runs")
    out = directory / "report.html"
    assert report.run(report.Config(runs=(directory / "runs",), out=out)) == 0
    return out


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of made-up runs at the paper's budget, for many studies at once."""
    directory = tmp_path_factory.mktemp("paper")
    methods = {"ann": "none", "bn": "clif", "re": "clif", "ca": "clif", "care-bn": "clif", "pop-san": "clif"}
    for env in ("InvertedDoublePendulum-v4", "Ant-v4", "HalfCheetah-v4", "Hopper-v4", "Walker2d-v4"):
        for i, (method, neuron) in enumerate(methods.items()):
            for seed in range(2):
                where = directory / "runs" / f"{env}-{method}-{seed}"
                write_run(where, method, env, seed, total=1_025_000, neuron=neuron, level=3000.0 + 300 * i)
    out = directory / "report.html"
    assert report.run(report.Config(runs=(directory / "runs",), out=out)) == 0
    return out


def lines_of(page: Page, place: str) -> int:
    return page.count(f"{place} .chart .line")


@pytest.mark.parametrize(("size", "dark"), [(DESKTOP, False), (DESKTOP, True), (PHONE, False), (PHONE, True)])
def test_real_runs_are_drawn_without_errors_or_requests(
    page: Page, sweep: Path, size: tuple[int, int], dark: bool
) -> None:
    page.open(sweep, size, dark, touch=size is PHONE)
    assert lines_of(page, "#explorer") == 2
    assert page.count("#explorer .chart polygon") == 2  # the intervals
    assert page.texts("#explorer .legend button") == ["CaRe-BN", "BN"]
    assert page.texts("#facts b")[:3] == ["8", "8", "2"]
    assert page.count("#how tbody tr") == 8
    # Nothing sticks out to the side; wide tables scroll in their own frame.
    assert page.js("return document.documentElement.scrollWidth") == size[0]
    assert page.driver.get_log("browser") == []
    assert page.requests() == [sweep.as_uri()]
    page.shoot(f"sweep-{size[0]}-{'dark' if dark else 'light'}")
    page.js("document.getElementById('paper').scrollIntoView({behavior: 'instant'})")
    page.shoot(f"sweep-paper-{size[0]}-{'dark' if dark else 'light'}")


def test_hovering_tells_the_values(page: Page, sweep: Path) -> None:
    from selenium.webdriver import ActionChains

    page.open(sweep, DESKTOP)
    assert not page.one("#explorer .tip").is_displayed()
    chart = page.one("#explorer .chart svg")
    ActionChains(page.driver).move_to_element_with_offset(chart, 575, 20).perform()  # from its middle: the right end
    tip = page.one("#explorer .tip")
    assert tip.is_displayed()
    assert "environment steps: 3,000" in tip.text
    data = json.loads(page.js("return document.getElementById('data').textContent"))
    env = next(e for e in data["environments"] if e["id"] == page.one("#environment").get_attribute("value"))
    for line in env["lines"]:
        shown = line["evaluation"]["mean"][-1]
        assert line["label"] in tip.text
        assert f"{shown:,.{0 if abs(shown) >= 1000 else 1 if abs(shown) >= 10 else 2}f}" in tip.text
    assert tip.text.count("n 2") == 2
    page.shoot("hover")
    ActionChains(page.driver).move_to_element(page.one("h1")).perform()
    assert not tip.is_displayed()
    assert page.driver.get_log("browser") == []


def test_a_finger_and_the_keyboard_tell_them_too(page: Page, sweep: Path) -> None:
    from selenium.webdriver import Keys

    page.open(sweep, PHONE, touch=True)
    box = page.js("const r = document.querySelector('#explorer .chart svg').getBoundingClientRect(); "
                  "return [r.left + r.width / 2, r.top + r.height / 2]")  # fmt: skip
    for kind, points in (("touchStart", [{"x": box[0], "y": box[1]}]), ("touchEnd", [])):
        page.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    tip = page.one("#explorer .tip")
    assert tip.is_displayed()  # and stays when the finger is gone
    page.js("document.querySelector('#explorer .chart svg').focus()")
    page.one("#explorer .chart svg").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert tip.is_displayed()
    assert "environment steps" in tip.text
    bounds = page.js("const r = arguments[0].getBoundingClientRect(); return [r.left, r.right]", tip)
    assert bounds[0] >= 0
    assert bounds[1] <= PHONE[0]
    page.shoot("phone-tip")
    page.one("#explorer .chart svg").send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()


def test_methods_switch_off_and_on(page: Page, sweep: Path) -> None:
    page.open(sweep, DESKTOP)
    first = page.one("#explorer .legend button")
    first.click()
    assert lines_of(page, "#explorer") == 1
    assert page.one("#explorer .legend button").get_attribute("aria-pressed") == "false"
    page.one("#explorer .legend button:last-child").click()
    assert lines_of(page, "#explorer") == 0
    assert "no line is switched on" in page.one("#explorer .chart").text
    page.one("#explorer .legend button").click()
    assert lines_of(page, "#explorer") == 1
    # Double-click: alone; again: all.
    from selenium.webdriver import ActionChains

    ActionChains(page.driver).double_click(page.one("#explorer .legend button:last-child")).perform()
    pressed = [
        b.get_attribute("aria-pressed") for b in page.driver.find_elements("css selector", "#explorer .legend button")
    ]
    assert pressed == ["false", "true"]
    ActionChains(page.driver).double_click(page.one("#explorer .legend button:last-child")).perform()
    assert lines_of(page, "#explorer") == 2
    assert page.driver.get_log("browser") == []


def test_environment_returns_band_and_smoothing_are_chosen(page: Page, sweep: Path) -> None:
    page.open(sweep, DESKTOP)
    drawing = "return document.querySelector('#explorer .chart svg').innerHTML"
    seen = [page.js(drawing)]
    for selector, value in (("#environment", ENVS[0]), ("#band", "half"), ("#what", "exploration"), ("#band", "none")):
        page.choose(selector, value)
        seen.append(page.js(drawing))
        assert lines_of(page, "#explorer") == 2
    assert len(set(seen)) == len(seen)
    assert page.count("#explorer .chart polygon") == 0
    assert "return while exploring" in page.one("#explorer .chart").text
    before = page.js("return document.querySelector('#explorer polyline').getAttribute('points')")
    page.js("const r = document.getElementById('smoothing'); r.value = 9; r.dispatchEvent(new Event('input'))")
    assert page.js("return document.querySelector('#explorer polyline').getAttribute('points')") != before
    assert page.driver.get_log("browser") == []


def test_the_sweep_stands_beside_the_paper(page: Page, sweep: Path) -> None:
    page.open(sweep, DESKTOP)
    figures = page.js("return [...document.querySelectorAll('#studies .card')].map(a => a.id)")
    assert {"study-wasserstein", "study-exploration", "study-main"} <= set(figures)
    assert "study-ablation" not in figures  # it is relative to the ANN, of which there is no run
    assert page.texts("#study-wasserstein h4") == ["layer 1", "layer 2", "layer 3"]
    assert lines_of(page, "#study-wasserstein") == 9  # BN, and CaRe-BN before and after re-calibration, per layer
    assert page.texts("#study-exploration h4") == list(ENVS)
    assert f"Ours at {STEPS:,} steps" in page.one("#study-main").text
    # Of the main table what there are runs of; then all of it: ten rows, five environments, and missing says so.
    assert page.texts("#study-main tbody td:first-child") == ["CaRe‑BN"]
    assert page.texts("#study-main thead th")[1:3] == ["IDP-v4", "Hopper-v4"]
    assert page.count("#study-main td .missing") == 3  # its gains over an ANN that was not trained
    button = page.one("#study-main .whole")
    assert button.text == "Without a run here: 9 rows and 3 columns. Show the whole table"
    page.js("arguments[0].click()", button)
    assert page.texts("#study-main tbody td:first-child") == [
        "ANN", "ANN-SNN (ours: final policy, T = 100)", "pop‑SAN", "MDC‑SAN", "ILC‑SAN", "tdBN", "BNTT", "TEBN", "TABN",
        "CaRe‑BN",
    ]  # fmt: skip
    assert page.count("#study-main .paper") == 10 * 7  # five environments, APG with and without
    assert page.count("#study-main .ours") == 2
    assert page.texts("#study-main .missing").count("missing") == 48
    assert page.count("#study-main .mark") == 2
    page.js("arguments[0].click()", button)
    assert page.count("#study-main tbody tr") == 1


def test_tables_mark_what_differs(page: Page, paper: Path) -> None:
    page.open(paper, DESKTOP)
    assert page.count("#study-main .ours") > 15
    assert page.count("#study-main .whole") == 1  # four rows of ten
    assert page.count("#study-main .mark.above") > 0
    assert page.count("#study-main .mark.below") > 0
    text = page.one("#study-main").text
    assert "Numbers are not expected to agree" not in text  # it is the paper's budget
    assert "▲" in text
    assert page.count("#study-ablation .bars .fill") == 4
    assert page.count("#study-ablation .whisker") == 4 * 3
    assert page.texts("#study-td3-curves .legend button")[0] == "ANN"
    before = lines_of(page, "#study-td3-curves")
    page.js("arguments[0].click()", page.one("#study-td3-curves .legend button"))
    assert lines_of(page, "#study-td3-curves") == before - 5  # in all panels at once
    assert page.driver.get_log("browser") == []
    assert page.requests() == [paper.as_uri()]


def test_how_a_run_was_made(page: Page, sweep: Path) -> None:
    page.open(sweep, DESKTOP)
    page.js("arguments[0].click()", page.one("#how .open"))
    detail = page.one("#how pre").text
    assert detail.startswith("carebn train --env-id")
    assert "torch 2." in page.one("#how").text
    find = page.one("#find")
    find.send_keys("hopper care-bn seed 1")
    assert page.count("#how tbody tr") == 1
    find.send_keys(" nothing")
    assert "no run matches" in page.one("#how").text


def report_of(runs: Path) -> Path:
    out = runs.parent / "report.html"
    assert report.run(report.Config(runs=(runs,), out=out)) == 0
    return out


def tip_at(page: Page, share: float) -> str:
    """What the chart tells at this share of its width."""
    script = """const r = document.querySelector('#explorer .chart svg').getBoundingClientRect();
        const x = r.left + r.width * arguments[0], y = r.top + r.height / 2;
        const at = {clientX: x, clientY: y, bubbles: true, pointerType: 'mouse'};
        document.querySelector('#explorer .chart').dispatchEvent(new PointerEvent('pointermove', at));"""
    page.js(script, share)
    return str(page.one("#explorer .tip").text)


def test_the_tip_lists_no_run_beyond_its_end(page: Page, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "long", "care-bn", total=100_000)
    write_run(tmp_path / "runs" / "short", "bn", total=100_000, done=30_000)
    write_converted_run(tmp_path / "runs" / "final", "Hopper-v4", 700.0, total=100_000)
    page.open(report_of(tmp_path / "runs"), DESKTOP)
    early, late, end = tip_at(page, 0.2), tip_at(page, 0.7), tip_at(page, 1.0)
    assert ("CaRe-BN" in early, "\nBN" in early, "ANN-SNN" in early) == (True, True, False)
    assert ("CaRe-BN" in late, "\nBN" in late, "ANN-SNN" in late) == (True, False, False)
    assert ("CaRe-BN" in end, "\nBN" in end, "ANN-SNN" in end) == (True, False, True)
    assert page.count("#explorer .chart circle.hover") == 2  # nor a dot
    page.shoot("tip-beyond-the-end")


def test_a_value_of_another_step_says_so(page: Page, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a")
    seldom = write_run(tmp_path / "runs" / "b", "bn")
    kept = [line for line in (seldom / "metrics.jsonl").read_text().splitlines() if '"step": 10000, "eval' not in line]
    (seldom / "metrics.jsonl").write_text("\n".join(kept) + "\n")
    page.open(report_of(tmp_path / "runs"), DESKTOP)
    told = tip_at(page, 0.35)
    assert "environment steps: 10,000" in told
    assert told.count(", at ") == 1
    assert ", at 5,000" in told


def test_one_evaluation_has_ticks_that_differ(page: Page, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", total=5_000)
    page.open(report_of(tmp_path / "runs"), DESKTOP)
    names = page.js("return [...document.querySelectorAll('#explorer .chart text.x')].map(e => e.textContent)")
    assert names[0] == "0"
    assert names[-1] == "5,000"  # as in the tip
    assert len(set(names)) == len(names)
    assert "5,000" in tip_at(page, 0.5)


def test_ticks_close_together_differ(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "a", total=20_000)
    rows = [
        {"step": 20_000 - 30 * i, "eval/mean_return": 12_345.0 + i / 1000, "eval/std_return": 0.0} for i in (2, 1, 0)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page.open(report_of(tmp_path / "runs"), DESKTOP)
    names = page.js("return [...document.querySelectorAll('#explorer .chart text')].map(e => e.textContent)")
    assert len(set(names)) == len(names) > 8


def test_it_opens_on_the_task_with_the_most_data(page: Page, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "ant", env_id="Ant-v4", done=5_000)
    for method in ("bn", "care-bn"):
        write_run(tmp_path / "runs" / method, method, env_id="Hopper-v4")
    page.open(report_of(tmp_path / "runs"), DESKTOP)
    assert page.one("#environment").get_attribute("value") == "Hopper-v4"
    assert lines_of(page, "#explorer") == 2


def test_one_run_is_a_short_page(page: Page, tmp_path: Path) -> None:
    """It was 6,000 pixels of "missing"."""
    write_run(tmp_path / "runs" / "a", total=1_025_000)
    out = report_of(tmp_path / "runs")
    for size in (PHONE, DESKTOP):
        page.open(out, size, touch=size is PHONE)
        assert page.js("return document.documentElement.scrollHeight") < 3_200
        assert page.js("return document.documentElement.scrollWidth") == size[0]
        page.shoot(f"one-run-{size[0]}")
    assert page.texts("#studies .missing").count("missing") == 0
    cards = page.js("return [...document.querySelectorAll('#studies .card')].map(c => [c.id, c.open])")
    assert [opened for _, opened in cards] == [True] + [False] * (len(cards) - 1)
    # Opened, a card draws its chart at its full width.
    page.js("document.querySelector('#study-td3-curves').open = true")
    wide = "return document.querySelector('#study-td3-curves .chart svg').viewBox.baseVal.width"
    page.wait(lambda: page.js(wide) > 800)
    assert not page.one("#absent ul").is_displayed()  # what has no run is one line
    assert page.count("#how .paging button:not([hidden])") == 0


def test_numbers_read_as_in_the_terminal(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "a", env_id="InvertedDoublePendulum-v4", total=5_000)
    row = {"step": 5_000, "eval/mean_return": 9343.48, "eval/std_return": 0.0, "returns": [9343.48]}
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    page.open(report_of(tmp_path / "runs"), DESKTOP)
    assert page.texts("#explorer tbody td")[1:3] == ["9343", "9343"]
    assert page.texts("#study-main .ours") == ["9343"]
    assert "▼" not in page.one("#study-main tbody").text
    assert "−0.05 %" in page.one("#study-main tbody").text
    assert page.texts("#how tbody td")[5] == "9343"
    assert "9343" in tip_at(page, 0.9)


def test_curves_against_time_and_every_seed_on_request(page: Page, tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path / "runs" / f"a{seed}", seed=seed)
        untimed = write_run(tmp_path / "runs" / f"b{seed}", "bn", seed=seed)
        (untimed / "timing.jsonl").unlink()
    page.open(report_of(tmp_path / "runs"), DESKTOP)
    assert (lines_of(page, "#explorer"), page.count("#explorer .chart .seed")) == (2, 0)
    page.one("#seeds").click()
    assert (lines_of(page, "#explorer"), page.count("#explorer .chart .seed")) == (2, 6)
    page.js("arguments[0].click()", page.one("#explorer .legend button"))
    assert page.count("#explorer .chart .seed") == 3  # a method that is off has no seeds either
    page.js("arguments[0].click()", page.one("#explorer .legend button"))
    page.choose("#against", "time")
    assert (lines_of(page, "#explorer"), page.count("#explorer .chart .seed")) == (1, 3)
    notes = page.one("#curve-notes").text
    assert "Curves begin at the first evaluation, after 5,000 steps." in notes
    assert "Without recorded times: BN." in notes
    assert "minutes of training: 3.33" in tip_at(page, 1.0)  # 20,000 steps at a hundred a second
    page.choose("#what", "exploration")
    assert not page.one("#against").is_enabled()
    assert page.count("#explorer .chart .seed") == 0
    page.choose("#what", "evaluation")
    page.one("#seeds").click()
    assert (page.count("#explorer .chart .seed"), lines_of(page, "#explorer")) == (0, 1)
    assert page.driver.get_log("browser") == []


def test_fewer_than_ten_evaluations_are_not_called_ten(page: Page, tmp_path: Path) -> None:
    write_run(tmp_path / "few" / "a")
    write_run(tmp_path / "many" / "a", total=50_000)
    for place, head in (("few", "last evaluations (ten, or all there are)"), ("many", "last ten evaluations")):
        page.open(report_of(tmp_path / place), DESKTOP)
        assert page.texts("#explorer th")[2] == head


def test_a_long_name_stays_in_its_card_on_a_phone(page: Page, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", env_id="somebody/" + "AVeryLongNameOfAnEnvironment" * 4 + "-v1")
    page.open(report_of(tmp_path / "runs"), PHONE, touch=True)
    assert page.js("return document.documentElement.scrollWidth") == PHONE[0]
    rights = page.js(
        "return ['#explorer .card', '#explorer .controls *'].map(where => "
        "Math.max(...[...document.querySelectorAll(where)].map(e => e.getBoundingClientRect().right)))"
    )
    assert rights[1] <= rights[0]
    assert page.js("const n = document.querySelector('nav div'); return n.scrollWidth - n.clientWidth") == 0
    page.shoot("long-name-390")


HOSTILE = "</script><script>window.stolen=1</script><img src=x onerror=window.stolen=1>\"'&\u2028"


def test_a_hostile_name_is_only_text(page: Page, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    write_run(runs / "a", method=HOSTILE, env_id="<b>bold</b>", neuron="{{script}}")
    write_run(runs / "<i>name", method="care-bn", env_id="<b>bold</b>")
    for run in (runs / "a", runs / "<i>name"):
        (run / "command.txt").write_text(HOSTILE)
        (run / "versions.json").write_text(json.dumps({HOSTILE: HOSTILE}))
    bad = runs / "<script>bad"
    bad.mkdir()
    (bad / "config.json").write_text('{"env_id": "<img src=y onerror=window.stolen=1>"}')
    out = tmp_path / "report.html"
    assert report.run(report.Config(runs=(runs,), out=out)) == 0
    page.open(out, DESKTOP)
    page.js("document.querySelectorAll('#how .open').forEach(b => b.click())")
    assert page.js("return window.stolen") is None
    assert page.count("main img, main b:not(.facts b), main i, header img") == 0
    assert any(HOSTILE.split("<img")[0] in text for text in page.texts("#explorer .legend button"))
    assert page.driver.get_log("browser") == []
    assert page.requests() == [out.as_uri()]
