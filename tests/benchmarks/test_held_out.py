"""The measure without luck: its problems are sound and disjoint, and its figures add up."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from benchmarks.suggesters import held_out
from benchmarks.suggesters.recorded_tables import recorded_tables
from benchmarks.suggesters.trainings import (
    REPEATS,
    SEALED,
    TO_DEVELOP,
    WORST,
    trainings,
)

DEVELOP, KEPT = trainings(sealed=False), trainings(sealed=True)


def test_models_and_data_of_the_parts_are_disjoint() -> None:
    assert len({t.name for t in DEVELOP}) == 60
    assert len({t.name for t in KEPT}) == 30
    assert not set(TO_DEVELOP) & set(SEALED)
    assert not {t.data for t in DEVELOP} & {t.data for t in KEPT}
    assert {t.kind for t in DEVELOP} == {t.kind for t in KEPT} == {"models", "networks", "choices"}


def test_no_split_that_judges_is_seen() -> None:
    seeds = [seed for part in REPEATS.values() for seed in part]
    assert len(seeds) == len(set(seeds))


@pytest.mark.parametrize("training", [*DEVELOP[::5], *KEPT[::3]], ids=lambda t: t.name)
def test_each_family_trains_and_repeats_itself(training) -> None:
    drawn = training.space.sample(np.random.default_rng(0), 4)
    losses = [training.losses(params, "seen") for params in drawn]
    assert all(len(loss) == 1 and 0 <= loss[0] <= WORST for loss in losses)
    assert len({loss[0] for loss in losses}) > 1
    assert training.losses(drawn[0], "seen") == losses[0]


def test_a_configuration_is_judged_on_two_cross_validations() -> None:
    tree = next(t for t in DEVELOP if t.name == "tree_friedman1")
    params = tree.space.sample(np.random.default_rng(0), 1)[0]
    assert len(tree.losses(params, "score")) == 6
    assert tree.losses(params, "score") != tree.losses(params, "reference")


@pytest.fixture
def table(tmp_path: Path):
    lines = ["rate,layer,value_seed0,value_seed1"]
    lines += [f"{rate},{layer},{rate},{rate + 1}" for rate in (0.1, 1.0, 10.0) for layer in "ab"]
    lines[-1] = "10.0,b,7.0,"  # one seed was not measured
    with gzip.open(tmp_path / "nas_toy.csv.gz", "wt") as file:
        file.write("\n".join(lines))
    return recorded_tables(tmp_path)[0]


def test_a_table_is_looked_up_at_the_nearest_value(table) -> None:
    assert table.kind == "choices"
    assert table.space.parameters["rate"].log
    assert table.score({"rate": 0.2, "layer": "a"}) == pytest.approx(-0.6)
    assert table.score({"rate": 10.0, "layer": "b"}) == -7.0
    rng = np.random.default_rng(0)
    assert {table.seen({"rate": 1.2, "layer": "b"}, rng) for _ in range(20)} == {-1.0, -2.0}
    assert {table.seen({"rate": 9.0, "layer": "b"}, rng) for _ in range(9)} == {-7.0}


def test_a_tables_scale_is_the_expected_best_of_five(table) -> None:
    scale = held_out.scale_of(table, [])
    rng = np.random.default_rng(0)
    drawn = rng.choice(table.means, (20_000, 5)).min(1).mean()
    assert scale["best"] == -10.5
    assert scale["five_random"] == pytest.approx(drawn, abs=0.05)


def test_no_problem_weighs_more_than_two_shares() -> None:
    amounts = np.array([0.1, 0.1, 0.1, 0.1, 3.0])
    shares = held_out.weights(amounts) * amounts
    assert shares.max() <= 2.0 * shares.mean() * 1.01
    assert held_out.weights([0.2, 0.2, 0.3]).tolist() == [1.0, 1.0, 1.0]


def test_differences_are_paired_by_problem_and_seed() -> None:
    base = {(f"p{i}", s): [0.5 + 0.1 * i] for i in range(3) for s in range(2)}
    ours = {key: [found[0] - 0.1] for key, found in base.items()} | {("other", 0): [9.0]}
    found = held_out.difference(ours, base, 0)
    assert found is not None
    assert found.mean == pytest.approx(-0.1)
    assert found.runs == 6
    assert held_out.difference({}, base, 0) is None


def test_regret_may_fall_below_the_reference() -> None:
    scale = {"best": 1.0, "five_random": 2.0}
    assert held_out.regrets({"score": [1.5, 0.9, 7.0]}, scale) == pytest.approx([0.5, -0.1, 2.0])


def test_without_rows_nothing_is_claimed() -> None:
    listed = held_out.problems("develop")
    found = held_out.claims([], listed, ["bayes"])
    assert all(claim.holds is not True for claim in found)


def test_a_look_at_the_sealed_problems_needs_a_reason(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["held_out.py", "--part", "sealed"])
    with pytest.raises(SystemExit):
        held_out.arguments()
    assert "--why" in capsys.readouterr().err
