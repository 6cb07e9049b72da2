"""No judge holds a claim that was not measured."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from benchmarks.common import store
from benchmarks.common.bounds import Claim, conclude
from benchmarks.control import report_page, scale, utilisation
from benchmarks.stoppers import curves, head_to_head, simulation
from benchmarks.stoppers.curve_problems import TABLES
from benchmarks.suggesters import claims as suggesters
from benchmarks.suggesters import fingerprint, problems, robust
from benchmarks.training import checkpoints, memory, sockeye_table, strategies

EMPTY: dict[str, Callable[[], list[Claim]]] = {
    "scale": lambda: scale.claims([], ["random", "bayes"]),
    "utilisation": lambda: utilisation.claims({}),
    "report page": lambda: report_page.claims({}),
    "simulation": lambda: simulation.claims([]),
    "curves": lambda: curves.claims({}, TABLES, 20),
    "curves, quick": lambda: curves.claims({}, TABLES, 1),
    "head to head": lambda: head_to_head.claims({}, 3),
    "head to head, quick": lambda: head_to_head.quick_claims({"optuna": {0: 1.0}}, None),
    "suggesters": lambda: suggesters.claims([], {}, problems.names()),
    "suggesters, quick": lambda: suggesters.quick_claims([], {}, problems.names(), (50, 200)),
    "robust": lambda: robust.claims({}, 250),
    "checkpoints": lambda: checkpoints.claims([], checkpoints.NAMES),
    "strategies": lambda: strategies.claims([], list(strategies.WORKLOAD), [2]),
    "memory": lambda: memory.claims([], memory.ALL),
    "sockeye": lambda: sockeye_table.claims({}, sockeye_table.PARTS),
    "sockeye, quick": lambda: sockeye_table.claims({}, ["speed"]),
}


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_measured_is_nothing_held(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = EMPTY[name]()
    assert found
    assert [str(claim) for claim in found if claim.holds is not None] == []
    assert conclude(found) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("NOT HELD")


def test_the_judges_of_the_stress_tests_hold_nothing_either() -> None:
    import fuzz
    import soak

    assert conclude(soak.claims({}, soak.KILLS, soak.KINDS)) == 1
    assert conclude(fuzz.claims(fuzz.total([]), 2000)) == 1


def test_no_claim_at_all_is_not_held(capsys: pytest.CaptureFixture[str]) -> None:
    assert conclude([]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "NOT HELD: nothing was measured"


def test_rows_of_the_peers_alone_are_not_enough() -> None:
    rows = [
        {"table": table, "contestant": peer, "seed": 0, "regrets": [0.5] * 200, "cpu": 0.0}
        for table in TABLES
        for peer in curves.CONTESTANTS
        if peer != curves.OURS
    ]
    found = curves.claims(dict(enumerate(rows)), TABLES, 1)
    assert conclude(found) == 1
    assert {claim.name for claim in found if claim.holds} == {"every peer on every table"}


def test_an_old_fingerprint_speaks_of_the_present_code_once_it_is_declared(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setattr(fingerprint, "SAME", tmp_path / "same_code.json")
    monkeypatch.setattr(store, "ROWS", tmp_path / "rows.jsonl")
    monkeypatch.setattr(store, "SPEED", tmp_path / "speed.jsonl")
    store.write(store.ROWS, [{"code": "0ld"}, {"code": ""}])
    fingerprint.fingerprint.cache_clear()
    present = fingerprint.present_fingerprint()
    assert fingerprint.fingerprint("bayes") == present
    with pytest.raises(ValueError, match="0ld"):
        fingerprint.declare_same("unknown")
    fingerprint.declare_same("0ld")
    fingerprint.fingerprint.cache_clear()
    assert fingerprint.fingerprint("bayes") == "0ld"
    assert fingerprint.fingerprint("tpe") == ""
    fingerprint.fingerprint.cache_clear()


@pytest.mark.parametrize("main", [scale.main, utilisation.main, simulation.main, memory.main])
def test_the_stored_rows_are_judged_without_measuring(main, capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark", "--table", "--check"])
    assert main() == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("HELD: all")
