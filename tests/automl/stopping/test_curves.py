"""Learning curves: their loss vectors, the warm-up, their model, and what `curve` makes of them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import automl
from automl.core import ReportPoint, Trial, TrialState, parse_constraints, parse_goals
from automl.core.trial import violation
from automl.stopping._curve_gp import Kernel, Points, Posterior, prior
from automl.stopping._curves import TrialCurves, WarmUp
from automl.stopping.curve import CurveStopper
from automl.suggesters.base import SearchContext
from automl.suggesters.domain import Domain, Limit
from search_spaces import Choice, Float, Space

VALUES = st.sampled_from([-2.0, -1.0, 0.0, 1.0, 2.0, math.nan, math.inf])
METRICS = st.dictionaries(st.sampled_from(["loss", "bleu", "size"]), VALUES)
OVERFITTED = [{"loss": loss, "bleu": -loss, "size": loss} for loss in (2.0, 1.0, 3.0, math.nan)]


@pytest.mark.parametrize(
    "goals",
    [
        "minimize loss",
        "minimize loss at the end",
        "maximize bleu at the end",
        ["minimize loss at the end", "maximize bleu"],
    ],
    ids=str,
)
@given(st.lists(METRICS, max_size=6))
@example(OVERFITTED)
def test_a_trial_has_the_loss_vector_of_each_report(
    goals: Any, reported: list[dict[str, float]]
) -> None:
    parsed, constraints = parse_goals(goals), parse_constraints("size <= 0")
    points = [ReportPoint(step, metrics, float(step)) for step, metrics in enumerate(reported)]
    curves = TrialCurves(Trial(0, {}, reports=points), parsed, constraints)  # type: ignore[arg-type]
    begin = len(points)
    for place in reversed(range(len(points))):
        until = reported[: place + 1]
        best = [
            known[-1] if goal.at_end else min(known)
            for goal in parsed
            if (
                known := [
                    x for m in until if math.isfinite(x := goal.loss(m.get(goal.metric, math.nan)))
                ]
            )
        ]
        latest = {name: value for item in until for name, value in item.items()}
        whole = len(best) == len(parsed)
        expected = (violation(latest, constraints), *best) if whole else None
        assert repr(curves.losses(place)) == repr(expected)
        assert repr(curves.losses_at(place - 0.5)) == repr(expected)
        begin = place if whole and place > 0 else begin
    assert curves.losses_at(len(points)) is None
    assert curves.begin == begin


STEPS, FLAT = 15, 8


def trial(
    number: int, params: Any, losses: Sequence[float], state: Any = TrialState.COMPLETED
) -> Trial:
    """A trial with these losses at steps 1, 2, ..."""
    counted = enumerate(losses, 1)
    reports = tuple(ReportPoint(step, {"loss": loss}, float(step)) for step, loss in counted)
    return Trial(number, params, state, dict(reports[-1].metrics), attempts=1, reports=reports)


def test_the_warmup_is_learned_from_completed_trials() -> None:
    """Trial 0 improves from its first report; of the others, early leaders lose at the end."""
    warmup = WarmUp(parse_goals("minimize loss"))
    for number in range(40):
        end = (number * 7 % 40) / 40
        early = [
            1.0 / step if number == 0 else 2.0 - end - 0.1 * step for step in range(1, FLAT + 1)
        ]
        losses = [*early, *(end - 0.01 * step for step in range(FLAT + 1, STEPS + 1))]
        warmup.observe(trial(number, {}, losses))
        assert number or warmup.end == 0.0
    assert FLAT - 2 < warmup.end <= FLAT + 2


GROUPS = torch.tensor([0, 1, 1, 2])


def test_the_density_is_that_of_the_kernel_and_a_fantasy_keeps_the_mean() -> None:
    random = torch.Generator().manual_seed(0)
    curve = torch.randint(0, 8, (30,), generator=random)
    z = torch.rand((8, 4), generator=random, dtype=torch.float64)[curve]
    t = torch.randint(1, 50, (30,), generator=random).double().log()
    points, y = Points(z, t, curve), torch.randn(30, generator=random, dtype=torch.float64)
    kernel = Kernel(prior(GROUPS)[0] + 0.2 * torch.randn(10, generator=random), GROUPS)
    covariance = kernel(points, points) + kernel.noise * torch.eye(30, dtype=torch.float64)
    # The best mean leaves the quadratic form of a mean with a variance of 1.
    about_one = covariance + 1.0
    squares = (y - 1.0) @ torch.linalg.solve(about_one, y - 1.0)
    expected = -0.5 * (squares + torch.logdet(covariance))
    posterior = Posterior.condition(kernel, points, y)
    torch.testing.assert_close(posterior.log_density(), expected, rtol=1e-9, atol=0.0)
    new, other = Points(z[:3], t[:3] + 1.0, curve[:3]), Points(z[3:9], t[3:9], curve[3:9])
    mean, variance = posterior.predict(other)
    known = posterior.fantasize(new).predict(other)
    torch.testing.assert_close(known[0], mean)
    assert (known[1] < variance).all()


SPACE = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0), Choice("kind", ["a", "b", "c"]))
LIMITS = {"x": Limit(low=0.8, high=0.9), "kind": Limit(choices=("a", "b"))}


def falling(params: Any) -> list[float]:
    end = (params["x"] - 0.2) ** 2 + 0.1 * params["y"]
    return [end + 1.0 / step for step in range(1, STEPS + 1)]


def stopper_of(context: SearchContext | None, **options: Any) -> CurveStopper:
    return CurveStopper(parse_goals("minimize loss"), space=SPACE, context=context, **options)


def proposals(stopper: CurveStopper) -> list[dict[str, Any]]:
    params = SPACE.sample(np.random.default_rng(0), 24)
    trials = [trial(i, one, falling(one)) for i, one in enumerate(params)]
    for one in trials:
        stopper.observe(one)
    stopper.spent, found = 0.5, []
    for _ in range(8):
        stopper.resume(trials)
        if (proposed := stopper.propose(trials)) is not None:
            found.append(dict(proposed))
    return found


@pytest.mark.parametrize("late", [False, True])
def test_new_configurations_lie_within_limits(late: bool) -> None:
    domain = Domain(SPACE, LIMITS)
    stopper = stopper_of(SearchContext(Domain(SPACE) if late else domain))
    stopper.restrict(domain)
    found = proposals(stopper)
    assert len(found) > 3
    assert all(domain.legal(params) for params in found)


def test_the_users_prior_decides_between_equal_options() -> None:
    for option in ("a", "b", "c"):
        found = proposals(stopper_of(SearchContext(Domain(SPACE), {"kind": option})))
        assert np.mean([params["kind"] == option for params in found]) > 0.8
    assert proposals(stopper_of(None)) == [], "another suggester chooses"


def test_no_trial_is_paused_at_the_step_at_which_others_completed() -> None:
    """The length is not known; a pause at the end would only keep the trial from counting."""

    def replay(params: Any) -> Any:
        yield from ((1.0, {"loss": loss}) for loss in falling(params))

    options: Any = {"workers": 8, "seconds": STEPS * 30 / 8, "stopper": "curve"}
    result = automl.simulate(replay, SPACE, "minimize loss", suggester="random", **options)
    paused = [note.message for note in result.decisions if note.kind == "pause"]
    assert paused
    assert not [message for message in paused if message.startswith(f"curve: at {STEPS} ")]


@pytest.mark.parametrize(("num_reports", "action"), [(STEPS - 1, "stop"), (STEPS, "continue")])
def test_a_hopeless_trial_that_cannot_pause_is_stopped_unless_it_is_at_its_end(
    num_reports: int, action: str
) -> None:
    stopper = stopper_of(None, can_pause=False)
    trials = []
    for number in range(13):
        params = {"x": 0.2 + 0.01 * number if number < 12 else 1.0, "y": 0.6, "kind": "a"}
        losses = falling(params)[: STEPS if number < 12 else num_reports]
        state = TrialState.COMPLETED if number < 12 else TrialState.RUNNING
        trials.append(trial(number, params, losses, state))
        stopper.observe(trials[-1])
    assert stopper.decide(trials[-1], trials).action == action
