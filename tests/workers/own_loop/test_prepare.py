"""`trial.prepare`: the same losses under every setting, and one sentence where it cannot act."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from own_loops import Pictures, by_hand, made, own_loop
from strategies import run_all
from torch import nn

from search_spaces.errors import UsageError
from workers.context import Context
from workers.protocol import Assignment, Report
from workers.run import run

UPDATES = 5
LIMITS = {"fp32": 1e-5, "bf16": 2e-2, "fp16": 2e-2}


PAIRS = [("fsdp", "single"), ("single", "fsdp"), ("fsdp", "ddp")]


def settings() -> list[dict[str, Any]]:
    found = [
        {"kind": "texts", "parallelism": one, "precision": precision, "accumulation": parts}
        for one, (precision, parts) in itertools.product(
            ("single", "ddp", "fsdp"), (("fp32", 1), ("fp32", 2), ("bf16", 4))
        )
    ]
    found += [
        {"kind": "pictures", "parallelism": one, "precision": precision, "accumulation": 2}
        for one, precision in (("single", "bf16"), ("ddp", "fp32"), ("fsdp", "fp16"))
    ]
    found.append({"kind": "texts", "parallelism": "fsdp", "activation_checkpointing": "layers"})
    for number, (first, second) in enumerate(PAIRS):
        both = {"kind": "texts", "folder": f"pair-{number}"}
        found.append({**both, "parallelism": first, "until": 3, "accumulation": 2})
        found.append({**both, "parallelism": second, "resume": True})
    return [{**one, "updates": UPDATES} for one in found]


def test_losses_are_those_of_the_loop_by_hand_and_go_on_under_another_strategy(
    tmp_path: Path,
) -> None:
    trials = settings()
    results = run_all(tmp_path, trials, 2, own_loop)
    expected = {kind: by_hand(kind, UPDATES) for kind in ("texts", "pictures")}
    for trial, found in zip(trials, results, strict=True):
        assert found["failure"] is None, (trial, found["message"], found["traceback"])
    whole = len(trials) - 2 * len(PAIRS)
    for trial, found in zip(trials[:whole], results[:whole], strict=True):
        assert list(found["loss"]) == [str(step) for step in range(UPDATES)], trial
        limit = LIMITS[trial.get("precision", "fp32")]
        assert list(found["loss"].values()) == pytest.approx(expected[trial["kind"]], rel=limit), (
            trial
        )
    for first, second in zip(results[whole::2], results[whole + 1 :: 2], strict=True):
        losses = [*first["loss"].values(), *second["loss"].values()]
        assert losses == pytest.approx(expected["texts"], rel=1e-5)


def attempt(folder: Path, train: Any, **params: Any) -> tuple[Any, list[Report]]:
    reports: list[Report] = []
    assignment = Assignment("s", 0, 1, params, None, str(folder), seed=1)
    return run(Context(assignment, reports.append), train), reports


REFUSED = [
    ({"parallelism": "fsdp"}, "parallelism fsdp runs on 2 ranks or more, and this trial has 1"),
    ({"parallelism": "fsdp"}, "parallelism fsdp loses hooks of parameters"),
    ({"parallelism": "pipeline"}, "parallelism pipeline is for workloads alone"),
    ({"parallelism": "tensor"}, "parallelism tensor is for workloads alone"),
    ({"precision": "fp8"}, "precision is one of fp32, tf32, bf16, fp16"),
    ({"activation_checkpointing": "layers"}, "activation_checkpointing layers needs the blocks"),
    ({"precision": "fp16"}, "call trial.backward.loss., which knows of precision"),
    ({"accumulation": 2}, "call trial.backward.loss., which knows of precision"),
    ({"accumulation": 16}, "a batch to divide into 16 parts has as many rows, got 8"),
]


@pytest.mark.parametrize(("params", "message"), REFUSED)
def test_what_cannot_act_is_one_sentence(
    tmp_path: Path, params: dict[str, Any], message: str
) -> None:
    def train(trial: Any) -> None:
        model = nn.Linear(4, 1)
        _ = "hooks" in message and model.weight.register_hook(print)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, loader = trial.prepare(model, optimizer, [torch.ones(8, 4)])
        for batch in loader:
            loss = model(batch).mean()
            loss.backward() if message.startswith("call") else trial.backward(loss)
            optimizer.step()

    outcome, _ = attempt(tmp_path, train, **params)
    assert outcome.exception == "UsageError"
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(outcome.message)


def test_parts_that_would_see_other_rows_or_lack_a_loader_are_refused(
    tmp_path: Path,
) -> None:
    def train(trial: Any, **options: Any) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        trial.prepare(model, [torch.ones(8, 4)], **options)

    outcome, _ = attempt(tmp_path, train, accumulation=2)
    assert "1 normalises over the rows of a batch" in outcome.message
    allowed = partial(train, local_batch_norm=True)
    outcome, _ = attempt(tmp_path, allowed, accumulation=2)
    assert "normalises" not in outcome.message
    assert attempt(tmp_path, train, accumulation=1)[0].exception != "UsageError"
    outcome, _ = attempt(tmp_path, lambda trial: trial.prepare(nn.Linear(1, 1)), accumulation=2)
    assert "accumulation 2 divides the batches of a loader" in outcome.message


def test_objects_come_back_in_their_order_and_the_optimizer_may_be_left_out(tmp_path: Path) -> None:
    def train(trial: Any) -> None:
        model, _, batches, _ = made("pictures")
        loader, prepared = trial.prepare(batches(3), model)
        with pytest.raises(UsageError, match="is called once"):
            trial.prepare(model)
        assert isinstance(prepared.module, Pictures)
        assert len(list(loader)) == 3

    outcome, _ = attempt(tmp_path, train)
    assert outcome.failure is None, outcome.details


def test_a_report_is_the_mean_of_an_update_and_counts_updates(tmp_path: Path) -> None:
    def train(trial: Any, start: int = 0) -> None:
        _, loader = trial.prepare(nn.Linear(1, 1), [torch.ones(4, 1)] * 2)
        for step, _ in enumerate(loader, start):
            trial.report(step, part=step)
        trial.report(99, epoch=torch.tensor(7.0))

    for start in (0, 1):
        _, reports = attempt(tmp_path, lambda trial, at=start: train(trial, at), accumulation=2)
        assert [report.step for report in reports] == [start, start + 1, 99]
        means = [report.metrics["part"] for report in reports[:2]]
        assert means == [start + 0.5, start + 2.5]


def test_a_loader_draws_the_same_whatever_the_model_draws(tmp_path: Path) -> None:
    drawn: list[list[int]] = []

    def train(trial: Any) -> None:
        data = torch.utils.data.TensorDataset(torch.arange(8.0).view(8, 1))
        loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
        model, loader = trial.prepare(nn.Dropout(trial.params["dropout"]), loader)
        for _ in range(2):
            for (rows,) in loader:
                model(rows)
                drawn.append(rows.flatten().tolist())

    attempt(tmp_path, train, dropout=0.0)
    attempt(tmp_path, train, dropout=0.5)
    assert drawn[:4] == drawn[4:]
    assert drawn[:2] != drawn[2:4], "each epoch has an order of its own"


def test_blocks_are_the_members_of_lists_or_else_of_sequences(tmp_path: Path) -> None:
    def train(trial: Any) -> None:
        stages = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.Tanh()) for _ in range(2))
        model = nn.ModuleDict({"body": nn.ModuleDict({"h": stages}), "head": nn.Linear(2, 2)})
        trial.prepare(model if trial.params["lists"] else stages[0])
        changed = [name for name, one in model.named_modules() if "forward" in vars(one)]
        assert changed == (
            ["body.h.0", "body.h.1"] if trial.params["lists"] else ["body.h.0.0", "body.h.0.1"]
        )

    for lists in (True, False):
        outcome, _ = attempt(tmp_path, train, activation_checkpointing="layers", lists=lists)
        assert outcome.failure is None, outcome.message


@pytest.mark.parametrize("listed", [True, False])
def test_microbatches_that_are_fetched_ahead_are_refused_if_they_are_parts(
    tmp_path: Path, listed: bool
) -> None:
    def ahead(trial: Any) -> None:
        model, optimizer, batches, loss_of = made("texts")
        model, optimizer, loader = trial.prepare(model, optimizer, batches(UPDATES + 1))
        microbatches = iter(list(loader) if listed else loader)
        batch = next(microbatches)
        for step in range(UPDATES):
            loss = loss_of(model, batch)
            batch = next(microbatches)
            trial.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            trial.report(step, loss=loss)
        assert optimizer.updates == UPDATES

    outcome, _ = attempt(tmp_path, ahead, accumulation=2)
    assert "do not make a list of the prepared loader" in outcome.message
    outcome, reports = attempt(tmp_path, ahead, accumulation=1)
    assert outcome.failure is None, outcome.details
    losses = [report.metrics["loss"] for report in reports]
    assert losses == pytest.approx(by_hand("texts", UPDATES), rel=1e-5)
