"""The problems, the scale and the loop of the benchmark of suggesters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.common.store import KEYS, Row, append, compact, load
from benchmarks.suggesters import aggregate, problems, report
from benchmarks.suggesters.claims import claims
from benchmarks.suggesters.fingerprint import fingerprint
from benchmarks.suggesters.loop import regret, run
from benchmarks.suggesters.problems import systems, systems_parallel
from benchmarks.suggesters.problems._simulator import (
    Device,
    Run,
    peak_memory,
    step_seconds,
)
from benchmarks.suggesters.scoring import RegretScale, hypervolume, scales


@pytest.fixture(params=problems.names())
def problem(request: pytest.FixtureRequest) -> problems.Problem:
    return problems.load(request.param)


def test_there_are_enough_of_every_kind() -> None:
    assert len(problems.names()) >= 24
    assert len(problems.names(tag="apart")) >= 8
    for tag in ("conditional", "mixed-integer", "noisy", "failing", "multi"):
        assert len(problems.names(tag=tag)) >= 2, tag


def test_every_legal_configuration_is_answered(problem: problems.Problem) -> None:
    rng = np.random.default_rng(0)
    seen = [
        (problem.truth(params), problem.evaluate(params, rng))
        for params in problem.space.sample(rng, 60)
    ]
    assert any(truth is not None for truth, _ in seen)
    for truth, observed in seen:
        if truth is not None:
            assert observed.failure is None
            assert all(math.isfinite(observed.metrics[goal.metric]) for goal in problem.goals)
        elif not problem.constraints:
            assert observed.failure is not None


def test_same_generator_same_observation(problem: problems.Problem) -> None:
    params = problem.space.sample(np.random.default_rng(1))[0]
    assert problem.evaluate(params, np.random.default_rng(5)) == problem.evaluate(
        params, np.random.default_rng(5)
    )


def test_nothing_beats_the_best_known_value(problem: problems.Problem) -> None:
    scale = scales().get(problem.name)
    if scale is None:
        pytest.skip("its best value has not been searched for")
    assert scale.best < scale.five_random
    points = problem.space.sample(np.random.default_rng(3), 500)
    if not scale.reference:
        assert scale.score([problem.truth(params) for params in points]) >= scale.best


def test_half_of_the_space_fails_where_it_says_so() -> None:
    for name in problems.names(tag="failing"):
        points = problems.load(name).space.sample(np.random.default_rng(0), 600)
        failed = sum(problems.load(name).truth(params) is None for params in points) / len(points)
        assert 0.3 < failed < 0.7, (name, failed)


RESOLVE = {
    "translation_one_gpu": systems.translation,
    "language_model_eight_gpus": systems_parallel.language_model,
    "mesh_sixteen_gpus": systems_parallel.mesh,
    "image_classifier": systems.image,
    "finetune": systems.finetune,
    "recurrent": systems.recurrent,
    "processor": systems.processor,
    "vision_transformer": systems_parallel.vision_transformer,
}


def test_parameters_change_only_what_they_affect() -> None:
    """A parameter that affects quality alone changes neither step time nor memory, and so on."""
    wrong = set()
    assert set(RESOLVE) == set(problems.names(tag="apart"))
    for name, resolve in RESOLVE.items():
        problem, rng = problems.load(name), np.random.default_rng(7)
        for start in [p for p in problem.space.sample(rng, 80) if problem.truth(p) is not None][:6]:
            before = resolve(start)
            for moved in problem.space.neighbours(start, rng, 30):
                changed = [n for n in problem.space.parameters if start.get(n) != moved.get(n)]
                affected = frozenset().union(
                    *(problem.space.parameters[n].affects for n in changed)
                )
                if problem.truth(moved) is None:
                    continue
                after = resolve(moved)
                apart = {
                    "speed": after.seconds != before.seconds,
                    "memory": after.memory != before.memory,
                    "quality": after.learning != before.learning,
                }
                wrong |= {
                    (name, what, *changed)
                    for what, differs in apart.items()
                    if differs and what not in affected
                }
    assert not wrong


def test_simulator_follows_first_principles() -> None:
    device = Device(16e9, {"fp32": 1e13, "bf16": 4e13}, bandwidth=1e11)
    base = {"weights": 1e9, "layers": 24, "width": 2048, "tokens": 4096.0}
    one, checkpointed = Run(**base), Run(**base, kept=0.1, replay=1.0)  # type: ignore[arg-type]
    assert peak_memory(checkpointed, device) < peak_memory(one, device)
    assert step_seconds(checkpointed, device) > step_seconds(one, device)
    sharded, copied = (Run(**base, data=8, sharded=flag) for flag in (True, False))  # type: ignore[arg-type]
    assert peak_memory(sharded, device) < peak_memory(copied, device)
    few, many = (Run(**{**base, "tokens": 65536.0}, stages=4, microbatches=m) for m in (1, 16))  # type: ignore[arg-type]
    assert step_seconds(many, device) < step_seconds(few, device)


def test_hypervolume_of_a_staircase() -> None:
    points = np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0], [3.5, 3.5], [9.0, 0.0]])
    assert hypervolume(points, (4.0, 4.0)) == pytest.approx(6.0)


def test_regret_is_that_of_the_trial_observed_to_be_best() -> None:
    problem, scale = problems.load("noisy_mixed"), scales()["noisy_mixed"]
    rng = np.random.default_rng(0)
    trials = [
        problem.trial(i, params, rng) for i, params in enumerate(problem.space.sample(rng, 20))
    ]
    chosen = min(trials, key=lambda trial: trial.metrics["loss"])
    truth = problem.truth(chosen.params)
    assert truth is not None
    assert regret(problem, scale, trials) == pytest.approx(
        min(2, (truth[0] - scale.best) / scale.five_random), rel=1e-3
    )
    assert RegretScale(0.0, 1.0).regret(math.inf) == 2.0


def test_a_run_repeats_and_rows_survive_a_torn_line(tmp_path: object) -> None:
    path = tmp_path / "rows.jsonl"  # type: ignore[operator]
    problem, scale = problems.load("failing_memory"), scales()["failing_memory"]
    rows = [run("random", problem, scale, seed, 10) for seed in (0, 1, 0)]
    assert rows[0]["regret"] == rows[2]["regret"] != rows[1]["regret"]
    for row in rows:
        append(path, row)
    path.write_text(path.read_text() + '{"problem": "failing_mem')
    append(path, {**rows[1], "seed": 7})
    assert {key[2] for key in load(path, *KEYS)} == {0, 1, 7}
    compact(path, *KEYS)
    assert len(path.read_text().splitlines()) == 3


def rows_of(
    suggester: str, regret: float, *, code: str | None = None, only: list[str] | None = None
) -> list[Row]:
    made = {
        "at": [10, 25, 50, 100],
        "regret": [regret] * 4,
        "failed": [1, 2, 5, 10],
        "seconds": [0.01, 0.02],
    }
    code = fingerprint(suggester) if code is None else code
    return [
        {"problem": name, "suggester": suggester, "seed": seed, "code": code, **made}
        for name in only or problems.names()
        for seed in (0, 1)
    ]


def test_without_rows_no_claim_is_measured() -> None:
    found = claims([], {}, problems.names())
    assert found
    assert all(claim.holds is None for claim in found)


def test_claims_compare_with_the_nearest_peer() -> None:
    systems = problems.names("systems")
    peers = (
        rows_of("tpe", 0.3)
        + rows_of("smac", 0.15, only=systems)
        + rows_of("hebo", 0.01, only=systems[:2])
    )
    held = {c.name: c for c in claims(rows_of("bayes", 0.1) + peers, {}, problems.names())}
    assert held["tabular: regret at 50 at most half of the best peer's"].holds
    assert held["systems: regret at 50 at most half of the best peer's"].holds is False
    assert "smac" in held["systems: regret at 50 at most half of the best peer's"].figures
    assert held["systems: at 25 no worse than the best peer at 50"].holds, (
        "two problems are too few to count"
    )
    assert held["best mean rank on all"].holds
    assert held["share of failed trials if half of the space fails"].holds
    assert held["metrics apart: at 25 no worse than as a black box at 50"].holds is None


def test_rows_of_the_present_code_count_once_they_are_whole() -> None:
    gone = [*problems.names(), "a problem that is no more"]
    old, part = rows_of("bayes", 0.5, code="x", only=gone), rows_of("bayes", 0.1, only=gone[:3])
    assert {row["regret"][0] for row in aggregate.select(old + part)} == {0.5}
    assert aggregate.stale(aggregate.select(old + part)) == ["bayes"]
    assert {row["regret"][0] for row in aggregate.select(old + rows_of("bayes", 0.1))} == {0.1}


def test_tables_name_every_contestant_and_problem() -> None:
    rows, names = rows_of("bayes", 0.1) + rows_of("tpe", 0.3), problems.names()
    for table in (report.regret_table, report.other_table):
        assert "tpe" in table(rows, names)
    assert all(name in report.problem_table(rows, names) for name in names)
