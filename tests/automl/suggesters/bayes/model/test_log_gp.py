"""Nodes of several kinds: each trial tells its own, and seconds and memory depend on it."""

from __future__ import annotations

import numpy as np
import pytest

from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes.model import aspects
from automl.suggesters.bayes.model.data import TrialReader
from automl.suggesters.bayes.model.fit import GPFitter
from automl.suggesters.bayes.model.latent_threshold import LatentThreshold
from automl.suggesters.bayes.model.log_gp import LogGP
from automl.suggesters.bayes.model.surrogates import Surrogates
from search_spaces import Float, Space

SPACE = Space(Float("size", 0.0, 1.0), Float("other", 0.0, 1.0))
SLOWER = 8.0
LIMITS = {"A10": 2.4e10, "H100": 8e10}


def drawn(count: int, seed: int) -> tuple[list[dict[str, float]], np.ndarray]:
    rng = np.random.default_rng(seed)
    return SPACE.sample(rng, count), rng.choice(sorted(LIMITS), count)


def test_seconds_are_told_apart_by_the_kind_of_node() -> None:
    params, kinds = drawn(24, 0)
    seconds = np.array([10 ** p["size"] for p in params]) * np.where(kinds == "A10", SLOWER, 1.0)
    unit = SPACE.encode(params)
    fitter = GPFitter.of_aspects(SPACE, aspects.SPEED, 0, num_particles=4)
    without = LogGP.fit(fitter, unit, seconds)
    aware = LogGP.fit(fitter, unit, seconds, kinds)

    def error(model: LogGP) -> float:
        mean, _ = model.model.leave_one_out()
        return float((model.model.y - mean.mean(0)).square().mean())

    assert error(aware) < 0.02 < 0.2 < error(without)
    slow = float((kinds == "A10").mean())
    expected = SPACE.encode([{"size": x, "other": 0.5} for x in (0.2, 0.8)])
    found = aware(expected)
    assert found[1] - found[0] == pytest.approx(0.6 * np.log(10), abs=0.2)
    assert found[0] == pytest.approx(0.2 * np.log(10) + slow * np.log(SLOWER), abs=0.5)


def test_one_kind_changes_nothing() -> None:
    params, _ = drawn(12, 1)
    unit = SPACE.encode(params)
    seconds = np.array([10 ** p["size"] for p in params])
    fitter = GPFitter.of_aspects(SPACE, aspects.SPEED, 0, num_particles=4)
    alike = LogGP.fit(fitter, unit, seconds, np.array(["H100"] * 12))
    assert alike(unit).tolist() == LogGP.fit(fitter, unit, seconds)(unit).tolist()


def test_each_kind_of_node_has_a_limit_of_its_own() -> None:
    params, kinds = drawn(40, 2)
    history = []
    for i, (config, kind) in enumerate(zip(params, kinds, strict=True)):
        peak = 1e10 * 10 ** config["size"]
        fits = peak < LIMITS[kind]
        history.append(
            Trial(
                i,
                config,
                TrialState.COMPLETED if fits else TrialState.FAILED,
                {"loss": 1.0} if fits else {},
                None if fits else "out_of_memory",
                peak_memory_bytes=int(peak) if fits else None,
                node_kind=str(kind),
            )
        )
    goals = [Goal("loss")]
    failures = Surrogates(SPACE, goals, (), 0).failures(TrialReader(SPACE, goals, [])(history))
    assert isinstance(failures.parts[0], LatentThreshold)
    some = SPACE.encode([{"size": x, "other": 0.5} for x in (0.2, 0.65, 0.98)])
    both, large_only, none = failures.log_probability(some).exp().tolist()
    share = float((kinds == "H100").mean())
    assert both > 0.95
    assert large_only == pytest.approx(share, abs=0.1)
    assert none < 0.3
