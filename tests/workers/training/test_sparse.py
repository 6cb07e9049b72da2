"""Sparse gradients of embeddings: what is updated, on one rank and on two, and after a pause."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from toy import Toy

from search_spaces.errors import UsageError
from search_spaces.hardware import detect
from workers.training import checkpoint
from workers.training.optimizers import build_optimizer, step
from workers.workloads import WORKLOADS

SPARSE = {"sparse_gradients": True, "max_updates": 4, "evaluate_updates": 1, "vocabulary": 400}


def test_rows_that_no_batch_looks_up_stay(runner: Any) -> None:
    outcome = runner(**SPARSE)
    assert outcome.failure is None, outcome.details["traceback"]
    toy = Toy({"vocabulary": 400}, {}, {}, seed=7)
    before = toy.build_model().embedding.weight
    after = checkpoint.load(runner.folder).model["embedding.weight"]
    tokens = torch.cat([b["tokens"][:, :-1].flatten() for b in list(toy.train_batches(0))[:4]])
    seen = torch.zeros(400, dtype=torch.bool).index_fill_(0, tokens.unique(), True)
    assert 20 < seen.sum() < 300
    assert torch.equal(after[~seen], before[~seen])
    changed = (after != before).any(1)
    assert changed.sum() > 20, "a token before padding alone has a gradient of 0"


def test_a_pause_changes_nothing(runner: Any, tmp_path: Path) -> None:
    runner(**SPARSE)
    whole = runner.losses()
    runner.folder = tmp_path / "paused"
    runner(**{**SPARSE, "max_updates": 2})
    outcome = runner(**SPARSE, resume=True)
    assert outcome.failure is None, outcome.details["traceback"]
    rest = runner.losses()
    assert sorted(rest) == [3, 4]
    assert rest == pytest.approx({update: whole[update] for update in rest}, rel=1e-6)


def test_embeddings_get_sparse_adam_and_the_rest_adamw() -> None:
    def made() -> nn.ModuleDict:
        torch.manual_seed(0)
        found = nn.ModuleDict({"e": nn.Embedding(9, 3, sparse=True), "l": nn.Linear(3, 2)})
        found["l"](found["e"](torch.tensor([1, 4, 4]))).square().sum().backward()
        return found

    ours, reference = made(), made()
    options = {"sparse_gradients": True, "weight_decay": 0.1}
    optimizer = build_optimizer(dict(ours.named_parameters()), options, embeddings=["e"])
    rule: Any = {"betas": (0.9, 0.98), "eps": 1e-9}
    others = (
        torch.optim.SparseAdam(reference["e"].parameters(), **rule),
        torch.optim.AdamW([reference["l"].weight], weight_decay=0.1, **rule),
        torch.optim.AdamW([reference["l"].bias], weight_decay=0.0, **rule),
    )
    for rate in (0.1, 0.2):
        for group in (g for one in (optimizer, *others) for g in one.param_groups):
            group["lr"] = rate
        step(optimizer)
        for other in others:
            other.step()
    for name, parameter in reference.named_parameters():
        torch.testing.assert_close(ours.get_parameter(name), parameter, rtol=1e-5, atol=1e-6)


def test_what_it_does_not_go_with_is_refused() -> None:
    parameters = {"e.weight": nn.Parameter(torch.ones(2, 2))}
    with pytest.raises(UsageError, match="sparse_gradients needs optimizer adam or adamw"):
        build_optimizer(
            parameters, {"sparse_gradients": True, "optimizer": "sgd"}, embeddings=["e"]
        )


def test_ranks_on_gpus_do_not_sum_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnGpu(nn.Parameter):
        is_cuda = True

    options = {"sparse_gradients": True, "parallelism": "ddp"}
    for backend in ("cpu:gloo,cuda:nccl", "cpu:gloo,cuda:gloo"):
        monkeypatch.setattr("torch.distributed.get_backend_config", lambda one=backend: one)
        told = "NCCL sums no sparse tensors" if "nccl" in backend else None
        with pytest.raises(UsageError, match=told) if told else nullcontext():
            weights = {"e.weight": OnGpu(torch.ones(2, 2)), "l": nn.Parameter(torch.ones(2))}
            build_optimizer(weights, options, embeddings=["e"])


def test_a_workload_without_embeddings_is_refused(runner: Any) -> None:
    outcome = runner(**SPARSE, tied=True)  # then the toy's plan names none
    assert outcome.message.endswith("needs a workload whose plan names embeddings")


def test_a_configuration_can_name_it_for_sentiment() -> None:
    kind = WORKLOADS.get("sentiment")
    assert "sparse_gradients" not in kind.space(detect()).parameters
    found = kind.on_request(detect())
    assert "sparse_gradients" in [parameter.name for parameter in found.parameters]
    assert "not sparse_gradients or optimizer in ('adamw', 'adam')" in found.constraints
