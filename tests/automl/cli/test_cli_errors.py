"""`automl sweep` refuses a wrong configuration or argument before it creates anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_sweeps import CONFIG, Start, sweep
from click.testing import Result


def refused(done: Result, message: str, folder: Path) -> None:
    """Exit status 2, one clear message, no traceback, and nothing created."""
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == [
        "mine.py",
        "toy.yaml",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the configuration is empty"),
        ("just words", "a configuration is a mapping"),
        ("- a\n- b\n", "a configuration is a mapping"),
        ("{", "not YAML"),
        ("name: [", "not YAML"),
        ("\tname: x", "not YAML"),
        ("name: x\nname: y", "this key is here twice"),
        ("name: &a x\nseed: *a", "aliases are not allowed"),
        ("name: !!python/name:os.system x", "tags are not allowed"),
        ("a: 1\n---\nb: 2", "one document is needed"),
        ("\x00", "not YAML"),
        ("[" * 3000, "levels deep"),
        ("a: " + "9" * 70000, "at most 65536 bytes"),
        (CONFIG + "seed: .nan", "numbers must be finite"),
        (CONFIG + "seed: 010", "leading zero"),
        (CONFIG + "seed: no", "a whole number of at least 0 is needed, got 'no'"),
        (CONFIG + "workers: 1:30", "a whole number of at least 1 is needed, got '1:30'"),
        (CONFIG + "workers: 1000000000", "at most 10000 is needed, got 1000000000"),
        (CONFIG + "sead: 1", "did you mean 'seed'?"),
        (CONFIG + "method: bayes", "toy.yaml:8: method: unknown key; `suggester: bayes`"),
        (CONFIG.replace("low:", "min:"), "space.x.min: unknown key; `low` is the least value"),
        (CONFIG + "stopper: median-", "unknown stopper"),
        (CONFIG.replace("sobol", "bays"), "did you mean 'bayes'?"),
        (CONFIG.replace("minimize", "min"), "a goal is"),
        (CONFIG.replace("high: 1.0", "high: -1.0"), "low of 'x' must not be above high"),
        (CONFIG.replace("low: 0.0", "low: .nan"), "numbers must be finite, got .nan"),
        (CONFIG.replace("  x:", "  precison: auto\n  x:"), "unknown knob"),
        (
            CONFIG.replace("trials: 4", "trials: 0"),
            "budget.trials: a whole number of at least 1 is needed, got 0",
        ),
        (CONFIG.replace("name: toy", "name: ../toy"), "a name has 1 to 64"),
    ],
)
def test_a_malformed_configuration_is_refused(folder: Path, text: str, message: str) -> None:
    (folder / "toy.yaml").write_text(text)
    refused(sweep(), message, folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--trials", "0"],
            "--trials: budget.trials: a whole number of at least 1 is needed, got 0",
        ),
        (
            ["--trials", "ten"],
            "--trials: budget.trials: a whole number of at least 1 is needed, got 'ten'",
        ),
        (["--budget", "soon"], "--budget: budget.time: a duration is like 90s"),
        (["--workers", "-1"], "--workers: workers: a whole number of at least 1 is needed, got -1"),
        (["--name", "a/b"], "--name: name: a name has 1 to 64"),
        (["--name", "nmt\n"], "--name: name: a name has 1 to 64"),
        (["--seed", "x"], "--seed: seed: a whole number of at least 0 is needed"),
        (
            ["budget.trails=3"],
            "override 'budget.trails=3': budget.trails: unknown key; did you mean 'trials'?",
        ),
        (["trials"], "override 'trials': an override is KEY=VALUE"),
        (["--store", "toy.yaml/runs"], "toy.yaml is not a folder"),
        (["--store", "/proc/automl/runs"], "cannot be made in /proc"),
        (["--store", "postgresql://me:secret@host/db"], "PGPASSWORD"),
        (["--store", "nosuch://host/db"], "nosuch"),
        (["--objective", "mine.py:"], "--objective is FILE:NAME"),
        (["--objective", "absent.py:f"], "there is no Python file 'absent.py'"),
        (["--objective", "mine.py:objectiv"], "did you mean 'objective'?"),
        (["--objective", "mine.py:not_callable"], "defines no function 'not_callable'"),
        (["--objective", "toy.yaml:f"], "there is no Python file 'toy.yaml'"),
        (["--nmae", "x"], "No such option"),
    ],
)
def test_a_wrong_argument_is_refused(folder: Path, arguments: list[str], message: str) -> None:
    refused(sweep(*arguments), message, folder)


def test_every_error_is_told_at_once(folder: Path) -> None:
    (folder / "toy.yaml").write_text(
        CONFIG.replace("sobol", "bays").replace("low: 0.0", "low: 2.0")
    )
    done = sweep("--trials", "0", "sed=1")
    refused(done, "4 errors in toy.yaml:", folder)
    for message in (
        "toy.yaml:3: space.x",
        "toy.yaml:6: suggester",
        "--trials: budget.trials",
        "override 'sed=1': sed",
    ):
        assert message in done.stderr


def test_a_file_that_cannot_be_imported_is_refused(folder: Path) -> None:
    (folder / "mine.py").write_text("import nothing_of_that_name\n")
    refused(sweep(), "mine.py cannot be imported: ModuleNotFoundError", folder)


def test_the_program_itself_ends_with_status_2_and_no_traceback(
    folder: Path, process: Start
) -> None:
    running = process("sweep", "toy.yaml", "seed=.inf", "--objective", "mine.py:objective")
    out, err = running.communicate()
    assert (running.returncode, out) == (2, "")
    assert err.startswith("Error: ")
    assert "Traceback" not in err
    assert sorted(path.name for path in folder.iterdir()) == ["mine.py", "toy.yaml"]


def test_a_malformed_configuration_is_refused_without_torch(folder: Path) -> None:
    (folder / "toy.yaml").write_text(CONFIG.replace("high: 1.0", "high: -1.0"))
    arguments = ["sweep", "toy.yaml", "--objective", "mine.py:objective"]
    program = f"import sys; sys.argv = ['automl', *{arguments}]\nfrom automl.cli import main\n"
    program += "try: main()\nexcept SystemExit as end: print(end.code, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "2 False\n", done.stderr
