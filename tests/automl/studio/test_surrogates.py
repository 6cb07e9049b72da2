"""The page Understand: a process of its own fits surrogates, only if somebody asks."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from report_sweeps import SPACE, write_sweep
from studio_stores import Client, serving
from test_studio_pages import opened, violations

from automl.errors import UsageError
from automl.studio.analysis import surrogates_of


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(write_sweep(tmp_path_factory.mktemp("learned"), 30)) as served:
        yield served


def test_the_server_has_no_torch() -> None:
    code = (
        "import sys, automl.studio.server; "
        "heavy = {'torch', 'ray', 'botorch', 'ax', 'optuna', 'pandas', 'plotly'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_newcomer_learns_what_matters_and_what_to_try(
    chromium: Any, learned: Client, scheme: str
) -> None:
    options = {"color_scheme": scheme, "bypass_csp": True}
    with opened(chromium, learned, "/", **options) as page:
        page.click("a:has-text('toy')")
        page.click("text=Which parameter matters?")
        page.wait_for_selector("body[data-understood]", timeout=120_000)
        assert page.inner_text(".headline").startswith("lr matters most for loss: it is best near ")
        page.wait_for_selector(".answers td")
        before = page.inner_text(".answers")
        page.locator("#ask-0").focus()
        for _ in range(40):
            page.keyboard.press("ArrowLeft")
        page.wait_for_function(
            "text => document.querySelector('.answers').innerText !== text", arg=before
        )
        assert page.inner_text(".shell code").startswith("automl enqueue toy lr=")
        assert "fails: out of memory" in page.inner_text(".answers")
        assert violations(page) == []
        page.set_viewport_size({"width": 375, "height": 800})
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_axes_of_contours_are_chosen_and_trials_selected_everywhere(
    chromium: Any, learned: Client
) -> None:
    with opened(chromium, learned, "/sweeps/toy/understand") as page:
        page.wait_for_selector(".contours[data-axes^='loss lr ']", timeout=120_000)
        page.select_option("#contours-y", "batch_size")
        page.wait_for_selector(".contours[data-axes='loss lr batch_size']")
        assert page.locator("[data-panel=contours] .iso").count() == 1
        page.select_option("#contours-x", "batch_size")  # the same twice: they change places
        page.wait_for_selector(".contours[data-axes='loss batch_size lr']")
        page.select_option("#contours-metric", "peak_memory_bytes")
        page.wait_for_selector(".contours[data-axes='peak_memory_bytes batch_size layout']")
        for panel in ("importance", "dependence", "calibration", "feasibility"):
            marks = page.locator(f"[data-panel={panel}] .plot :is(path, rect)").count()
            assert marks > 0, panel
        assert page.inner_text("[data-panel=trials] p") == (
            "All 30 trials. Drag in a figure to select some of them."
        )
        plot = page.locator("[data-panel=feasibility] .plot")
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 34)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] - 10, box["y"] + box["height"] - 44, steps=4)
        page.mouse.up()
        chosen = int(page.inner_text("#select-told").split()[0])
        assert 0 < chosen < 30
        assert page.inner_text("[data-panel=trials] p") == f"{chosen} trials selected."
        assert page.locator("[data-panel=dependence] .points.faded").count() > 0
        assert page.locator("[data-panel=parallel] .faint").get_attribute("d")
        page.fill("#select", "optimizer = sgd")
        told = page.inner_text("#select-told")
        assert told.endswith("selected by the filter")
        numbers = page.locator("[data-panel=trials] tbody td:nth-child(1) a").all_inner_texts()
        trials = {one["number"]: one for one in learned.get("/api/sweeps/toy/trials")}
        assert {trials[int(n)]["params"]["optimizer"] for n in numbers} == {"sgd"}
        page.click("text=Show all")
        assert page.locator(".faded").count() == 0


@pytest.mark.parametrize("query", ["metric=loss&x=lr&y=lr", "metric=no&x=lr&y=momentum", ""])
def test_wrong_axes_are_refused(learned: Client, query: str) -> None:
    status, body, _ = learned.ask(f"/api/sweeps/toy/contours?{query}")
    assert status == 404, body
    assert json.loads(body)["error"]


def test_the_recommended_configuration_is_that_of_best(learned: Client) -> None:
    found = learned.get("/api/sweeps/toy/recommended")["recommended"]
    low, high = found["interval"]
    assert low <= found["mean"] <= high
    assert found["params"].keys() <= SPACE.parameters.keys()
    assert found["runs"] == len(found["trials"]) >= 1


def test_predictions_follow_the_configuration(learned: Client) -> None:
    def predicted(**changed: Any) -> dict[str, Any]:
        params = json.dumps({**SPACE.default(), **changed})  # type: ignore[dict-item]
        found: dict[str, Any] = learned.get(
            f"/api/sweeps/toy/predict?params={params}".replace(" ", "")
        )
        return found

    good, bad = predicted(lr=3e-3), predicted(lr=1e-5)
    assert good["metrics"][0]["high"] < bad["metrics"][0]["low"]
    assert predicted(batch_size=500)["failures"]["out_of_memory"] > 0.8
    assert predicted(batch_size=16)["failures"]["out_of_memory"] < 0.2


@pytest.mark.parametrize(
    "query", ["", "params=3", "params={", 'params={"lr":1e9}', "params=" + "[" * 9000]
)
def test_a_wrong_configuration_is_refused(learned: Client, query: str) -> None:
    status, body, _ = learned.ask(f"/api/sweeps/toy/predict?{query}")
    assert status == 404, body
    assert json.loads(body)["error"]


def test_a_process_that_was_killed_is_started_again(tmp_path: Path) -> None:
    store = write_sweep(tmp_path, 12)
    question = {"ask": "insights", "sweep": "toy"}

    async def ask() -> None:
        queries = surrogates_of(store)
        first = await queries.ask(question)
        process = queries.close()
        assert process is not None
        await process.wait()
        assert await queries.ask(question) == first
        with pytest.raises(UsageError, match="there is no sweep named 'nope'"):
            await queries.ask(question | {"sweep": "nope"})
        await queries.end()

    with ThreadPoolExecutor(1) as thread:  # the browser has a loop in this one
        thread.submit(asyncio.run, ask()).result(timeout=120)
