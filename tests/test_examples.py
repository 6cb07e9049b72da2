"""The examples run on few trials in this process, the notebooks each in a kernel of its own."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
OPTIONS = {
    "ask_and_tell": {},
    "distributed_function": {"dispatcher": "local"},
    "gpt_loop": {"dispatcher": "inline", "updates": 4, "knobs": ("precision", "accumulation")},
}
NEEDS = {  # if a library is not installed, its example is left out
    "finetune_transformer": "transformers",
    "lightning_module": "lightning",
    "scikit_learn_model": "sklearn",
    "xgboost_model": "xgboost",
}
QUICK = """import functools, automl
automl.sweep = functools.partial(automl.sweep, suggester="sobol")"""
FILES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


pytestmark = pytest.mark.usefixtures("frozen_heap")


@pytest.mark.parametrize("name", FILES)
def test_an_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.chdir(tmp_path)
    options = OPTIONS.get(name, {"dispatcher": "inline"})
    result: Any = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](trials=4, **options)
    assert result.best is not None
    assert len(result.trials) >= 4
    assert all(trial.state.finished for trial in result.trials)


@pytest.mark.parametrize(
    "path", sorted((EXAMPLES / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_a_notebook(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), (
        "outputs are not kept in the repository"
    )
    notebook.cells.insert(0, nbformat.v4.new_code_cell(QUICK))
    place = {"metadata": {"path": str(tmp_path)}}
    given = {"timeout": 280, "startup_timeout": 280, "resources": place}
    nbclient.NotebookClient(notebook, **given).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert {"text/html", "application/vnd.plotly.v1+json"} <= kinds
    if path.stem == "first_sweep":
        pages = [output.get("data", {}).get("text/html", "") for output in outputs]
        assert any(re.search(r"finished \(.*\), 12 of 12 trials", page) for page in pages), (
            "the sweep shows how it goes on"
        )
