"""A prepared loop computes what plain torch does: a test for each kind of reported difference."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from strategies import run_all
from torch import Tensor, nn
from torch.nn import functional

from search_spaces.errors import UsageError
from workers.context import Context
from workers.own_loop.prepare import weight_of
from workers.protocol import Assignment, Report
from workers.run import run

X = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
Y = X.sum(1, keepdim=True)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.out = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.out(x)

    def called(self, x: Tensor, y: Tensor) -> Tensor:
        return functional.mse_loss(self(x), y)

    def inlined(self, x: Tensor, y: Tensor) -> Tensor:
        for block in self.blocks:
            x = torch.tanh(block(x))
        return functional.mse_loss(self.out(x), y)

    def size(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())


def net() -> Net:
    torch.manual_seed(3)
    return Net()


def batches(size: int = 13) -> list[tuple[Tensor, Tensor]]:
    """Neither ranks nor parts have equal numbers of rows; the last batch has fewer."""
    return [(X[i : i + size], Y[i : i + size]) for i in range(0, len(X), size)]


def in_plain_torch() -> list[float]:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for x, y in batches():
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def by_methods(trial: Context) -> None:
    """A loop that never calls the model itself."""
    model: Any = net()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    method = trial.params["method"]
    model, optimizer, loader = trial.prepare(model, optimizer, batches(), clip_norm=0.5)
    for step, (x, y) in enumerate(loader):
        model.zero_grad()  # in vain between the parts of an update
        loss = getattr(model, method)(x, y)
        trial.backward(loss)
        optimizer.step()
        trial.report(step, loss=loss)


def attempt(folder: Path, train: Any, number: int = 1, **params: Any) -> tuple[Any, list[Report]]:
    reports: list[Report] = []
    resume = number > 1
    one = Assignment("s", 0, number, params, None, str(folder), seed=1, resume=resume)
    return run(Context(one, reports.append), train), reports


def good(folder: Path, train: Any, **params: Any) -> list[Report]:
    outcome, reports = attempt(folder, train, **params)
    assert outcome.failure is None, (outcome.message, outcome.details)
    return reports


METHODS = [
    {"loop": "by_methods", "method": method, "parallelism": strategy, "accumulation": parts}
    for method in ("called", "inlined")
    for strategy, parts in (("ddp", 1), ("fsdp", 2), ("single", 2))
]
PARTS = [{"loop": "in_parts", "parallelism": one} for one in ("ddp", "fsdp")]
TOKENS = [
    {"loop": "over_tokens", "loss": name, "parallelism": "ddp"}
    for name in ("by_function", "by_hand", "smoothed")
]


def named_loop(trial: Context) -> None:
    LOOPS[trial.params["loop"]](trial)


@pytest.fixture(scope="module")
def on_two_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """By loop the trials and losses of one gang."""
    trials: list[Any] = [*METHODS, *PARTS, *TOKENS, {"loop": "unfrozen", "parallelism": "ddp"}]
    results = run_all(tmp_path_factory.mktemp("ranks"), trials, 2, named_loop)
    found: dict[str, list[Any]] = {}
    for trial, result in zip(trials, results, strict=True):
        assert result["failure"] is None, (trial, result["message"], result["traceback"])
        found.setdefault(trial["loop"], []).append((trial, list(result["loss"].values())))
    return found


def test_methods_beside_forward_train_alike_on_every_rank(on_two_ranks: Any) -> None:
    expected = in_plain_torch()
    for trial, losses in on_two_ranks["by_methods"]:
        assert losses == pytest.approx(expected, rel=1e-5), trial


def test_the_model_stays_of_its_class(tmp_path: Path) -> None:
    def train(trial: Any) -> None:
        given = net()
        model = trial.prepare(given)
        assert model is given
        assert isinstance(model, Net)
        assert model.module is model
        assert type(model).__name__ == "Net"
        assert model.size() == 25 + 20
        assert next(name for name, _ in model.named_parameters()) == "blocks.0.weight"
        for plain in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert type(plain) is Net
            assert torch.equal(plain(X), model(X))

    good(tmp_path, train)


@pytest.mark.parametrize("options", [{}, {"clip_norm": 100.0}, {"precision": "fp16"}])
def test_hooks_of_a_step_and_schedulers(
    tmp_path: Path, options: dict[str, Any], recwarn: pytest.WarningsRecorder
) -> None:
    calls: list[str] = []

    def train(trial: Any) -> None:
        model: Any = net()
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.01)
        optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
        optimizer.register_step_post_hook(lambda *_: calls.append("after"))
        model.register_forward_hook(lambda *_: calls.append("forward"))
        scheduler: Any = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        model, optimizer, scheduler = trial.prepare(model, optimizer, scheduler, **options)
        for _ in range(3):
            trial.backward(functional.mse_loss(model(X), Y))
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        assert scheduler.last_epoch == optimizer.updates
        assert type(copy.deepcopy(scheduler)) is torch.optim.lr_scheduler.StepLR
        pickle.dumps(scheduler)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01 / 2**optimizer.updates)
        assert calls.count("after") == calls.count("before") == optimizer.updates

    good(tmp_path, train)
    assert calls.count("forward") == 3
    assert not [one for one in recwarn if "lr_scheduler" in str(one.message)]


def test_an_epoch_of_a_scheduler_counts_though_its_last_update_was_skipped(tmp_path: Path) -> None:
    def train(trial: Any) -> None:
        model: Any = nn.Linear(4, 1)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.01)
        scheduler: Any = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        model, optimizer, scheduler = trial.prepare(model, optimizer, scheduler, precision="fp16")
        for factor in (1e-3, 1e-3, 1e6):
            trial.backward(functional.mse_loss(model(X), Y) * factor)
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()
        assert (scheduler.last_epoch, optimizer.updates) == (1, 2)
        assert trial.details["skipped_updates"] == 1

    good(tmp_path, train)


def test_gradients_of_numbers_beside_the_model_are_unscaled(tmp_path: Path) -> None:
    found: dict[str, float] = {}

    def train(trial: Any, precision: str, parts: int) -> None:
        model: Any = net()
        weight = nn.Parameter(torch.zeros(()))
        optimizer: Any = torch.optim.SGD([*model.parameters(), weight], lr=0.01)
        model, optimizer, loader = trial.prepare(
            model, optimizer, batches(16), precision=precision, accumulation=parts
        )
        for x, y in loader:
            loss = functional.mse_loss(model(x), y) / 64 * torch.exp(-weight) + weight / 64
            trial.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        found[f"{precision} {parts}"] = weight.item()

    for precision, parts in (("fp32", 1), ("fp16", 1), ("fp32", 2), ("bf16", 1)):
        good(tmp_path / precision, partial(train, precision=precision, parts=parts))
    expected = found.pop("fp32 1")
    assert found == pytest.approx(dict.fromkeys(found, expected), abs=1e-4)


def in_parts(trial: Context) -> None:
    """Loads into the parts of a model that ranks hold, and says what was refused."""
    model: Any = net()
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=0.1)
    model, optimizer = trial.prepare(model, optimizer)
    ones = {name: torch.ones_like(value) for name, value in net().state_dict().items()}
    refused = 0
    for state in (
        {**ones, "out.bias": torch.ones(2)},
        {**ones, "out.wieght": torch.ones(1, 4)},
        {"out.bias": ones["out.bias"]},
    ):
        try:
            model.load_state_dict(state)
        except RuntimeError:
            refused += 1
    missing, _ = model.load_state_dict({"out.bias": ones["out.bias"]}, strict=False)
    plain = net()
    other = torch.optim.AdamW(plain.parameters(), lr=0.3)
    functional.mse_loss(plain(X), Y).backward()
    other.step()
    optimizer.load_state_dict(other.state_dict())  # of plain torch
    again = optimizer.state_dict()
    same = trial.rank or all(
        torch.allclose(again["state"][key]["exp_avg"], value["exp_avg"])
        for key, value in other.state_dict()["state"].items()
    )
    found = {"refused": refused, "missing": len(missing), "same": float(same)}
    trial.report(0, loss=float(found == {"refused": 3, "missing": 5, "same": 1.0}))


def unfrozen(trial: Context) -> None:
    # DDP reduces no gradient of a parameter that was frozen when it began.
    model: Any = net()
    model.out.requires_grad_(False)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = trial.prepare(model, optimizer)
    model.out.requires_grad_(True)
    trial.backward(model(X).mean())
    with pytest.raises(UsageError, match="ddp reduces the gradients"):
        optimizer.step()
    trial.report(0, loss=1.0)


def test_what_ranks_hold_in_parts_and_what_was_frozen_is_checked_too(on_two_ranks: Any) -> None:
    rows = (*on_two_ranks["in_parts"], *on_two_ranks["unfrozen"])
    assert [losses for _, losses in rows] == [[1.0], [1.0], [1.0]]


@dataclass(slots=True)
class Slotted:
    logits: Tensor


class Record(OrderedDict[str, Any]):
    pass


OUTPUTS = [Slotted, lambda x: Record(logits=x), lambda x: [{"logits": (x,)}]]


@pytest.mark.parametrize("made", OUTPUTS)
def test_outputs_become_fp32_in_any_container(tmp_path: Path, made: Any) -> None:
    class Wrapped(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return made(super().forward(x))

    def train(trial: Any) -> None:
        output = trial.prepare(Wrapped(4, 2), precision="bf16")(X)
        assert type(output) is type(made(X))
        found = output[0]["logits"][0] if isinstance(output, list) else None
        found = output["logits"] if isinstance(output, Record) else found
        assert (output.logits if found is None else found).dtype is torch.float32

    good(tmp_path, train)


def test_a_half_precision_in_which_no_method_computes_is_refused(tmp_path: Path) -> None:
    def train(trial: Any) -> None:
        model = trial.prepare(net(), precision="bf16")
        trial.backward(model.out(X).mean())

    assert "bf16 acts in the prepared model" in attempt(tmp_path, train)[0].message


LABELS = torch.randint(0, 5, (34, 6), generator=torch.Generator().manual_seed(2))
LENGTHS = torch.randint(1, 7, (34, 1), generator=torch.Generator().manual_seed(3))
PADDED = torch.where(torch.arange(6)[None] < LENGTHS, LABELS, -100)
WORDS = torch.randn(34, 6, 4, generator=torch.Generator().manual_seed(4))


def by_function(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


def by_hand(scores: Tensor, labels: Tensor) -> Tensor:
    each = functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none")
    return each.sum() / (labels != -100).sum()


def by_selection(scores: Tensor, labels: Tensor) -> Tensor:
    each = functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none")
    return each[labels.flatten() != -100].mean()


def smoothed(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), label_smoothing=0.1)


LOSSES = {one.__name__: one for one in (by_function, by_hand, by_selection, smoothed)}


def over_tokens(trial: Context) -> None:
    """Trains on rows with padding, the last microbatch of which may have no token at all."""
    torch.manual_seed(3)
    model: Any = nn.Linear(4, 5)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.5)
    loader: Any = [(WORDS[i : i + 16], PADDED[i : i + 16]) for i in range(0, 34, 16)]
    name = trial.params["loss"]
    model, optimizer, loader = trial.prepare(model, optimizer, loader)
    for step, (words, labels) in enumerate(loader):
        loss = LOSSES[name](model(words), labels)
        weight = int((labels != -100).sum()) if name == "smoothed" else None
        trial.backward(loss, weight=weight)
        optimizer.step()
        optimizer.zero_grad()
        trial.report(step, loss=loss)


LOOPS = {one.__name__: one for one in (by_methods, in_parts, over_tokens, unfrozen)}


def test_a_mean_over_tokens_counts_by_its_tokens(tmp_path: Path, on_two_ranks: Any) -> None:
    expected = {}
    for name in LOSSES:
        reports = good(tmp_path / name, over_tokens, loss=name)
        expected[name] = [report.metrics["loss"] for report in reports]
        parts = good(tmp_path / f"{name} 2", over_tokens, loss=name, accumulation=2)
        found = [report.metrics["loss"] for report in parts if report.metrics]
        assert found == pytest.approx(expected[name], rel=1e-5), name
    for trial, losses in on_two_ranks["over_tokens"]:
        assert losses == pytest.approx(expected[trial["loss"]], rel=1e-5), trial


SCORES = nn.Linear(4, 5)
GIVEN = torch.where(PADDED[:8] == 4, -100, PADDED[:8])
TARGET = torch.randn(8, 6, 5, generator=torch.Generator().manual_seed(5))
TOKENS_OF = int((GIVEN != -100).sum())
# By losses what they count by: rows, tokens, or unknown, which is refused.
COUNTED: dict[str, tuple[Any, Any]] = {
    "mean": (lambda s: functional.mse_loss(s, TARGET) / 4, None),
    "sum over rows": (lambda s: functional.mse_loss(s, TARGET, reduction="sum") / len(s), None),
    "with a penalty": (lambda s: s.square().mean() + SCORES.weight.norm(), None),
    "tokens": (lambda s: by_function(s, GIVEN) + SCORES.weight.square().sum(), TOKENS_OF),
    "tokens by hand": (lambda s: by_hand(s, GIVEN), TOKENS_OF),
    "smoothed": (lambda s: smoothed(s, GIVEN), TOKENS_OF),
    "masked": (lambda s: functional.mse_loss(s[GIVEN > 0], TARGET[GIVEN > 0]), 5),
    "two means": (lambda s: by_function(s, GIVEN) + s.square().mean(), UsageError),
    "sum": (lambda s: functional.mse_loss(s, TARGET, reduction="sum"), UsageError),
    "root": (lambda s: functional.mse_loss(s, TARGET).sqrt(), UsageError),
    "product": (lambda s: s.square().mean() * s.mean(), UsageError),
    "ratio": (lambda s: (s * TARGET).sum() / s.sum(), UsageError),
    "largest": (lambda s: s.max(), UsageError),
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_loss_counts_by_its_items_or_its_weight_must_be_said(name: str) -> None:
    loss, expected = COUNTED[name]
    if expected is UsageError:
        with pytest.raises(UsageError, match="weight=tokens"):
            weight_of(loss(SCORES(WORDS[:8])))
    else:
        items = weight_of(loss(SCORES(WORDS[:8])))
        per_item = int((GIVEN > 0).sum()) if name == "masked" else 1
        assert items is expected or float(items or 0) == expected * per_item


def scaled(trial: Any, model: Any, optimizer: Any, loss: Tensor) -> None:
    scaler = torch.amp.GradScaler("cpu")
    trial.backward(scaler.scale(loss))
    scaler.step(optimizer)


UPDATES: list[tuple[Any, str]] = [
    (
        lambda trial, model, optimizer, loss: (
            trial.backward(loss),
            nn.utils.clip_grad_norm_(model.parameters(), 0.1),
            optimizer.step(),
        ),
        "the loop has changed gradients",
    ),
    (
        lambda trial, model, optimizer, loss: (
            trial.backward(loss),
            optimizer.step(),
            [setattr(parameter, "grad", None) for parameter in model.parameters()],
        ),
        "the loop has changed gradients",
    ),
    (scaled, "leave out GradScaler"),
    (lambda trial, model, optimizer, loss: trial.backward(loss), "call optimizer.step.. after"),
    (
        lambda trial, model, optimizer, loss: optimizer.step(lambda: loss),
        "computes the loss of a whole batch again",
    ),
    (
        lambda *_: torch.optim.SGD(nn.Linear(1, 1).parameters(), 0.1).step(),
        "only the optimizer that trial.prepare was given may step",
    ),
]


@pytest.mark.parametrize(("update", "message"), UPDATES)
def test_an_update_of_the_loops_own_is_that_of_torch_or_refused(
    tmp_path: Path, update: Any, message: str
) -> None:
    def train(trial: Any) -> None:
        model: Any = net()
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, loader = trial.prepare(model, optimizer, batches())
        for x, y in loader:
            update(trial, model, optimizer, functional.mse_loss(model(x), y))

    good(tmp_path / "whole", train)
    outcome, _ = attempt(tmp_path / "parts", train, accumulation=2)
    assert outcome.exception == "UsageError"
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(outcome.message)


def test_a_closure_computes_the_loss_as_often_as_the_optimizer_asks(tmp_path: Path) -> None:
    weights = []

    def fit(model: Any, optimizer: Any, backward: Any) -> None:
        def closure() -> Tensor:
            optimizer.zero_grad()
            backward(loss := functional.mse_loss(model(X), Y))
            return loss

        optimizer.step(closure)
        weights.append(model.out.weight.detach())

    def train(trial: Any) -> None:
        model = net()
        lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=5)
        prepared = trial.prepare(model, lbfgs) if trial else (model, lbfgs)
        fit(*prepared, trial.backward if trial else Tensor.backward)

    train(None)
    good(tmp_path, train)
    assert torch.equal(*weights)


class Normed(nn.Module):
    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), norm()) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Counter(nn.Module):
    """A running mean of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x - self.mean


def spectral() -> nn.Module:
    return torch.nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))


@pytest.mark.parametrize("norm", [partial(nn.BatchNorm1d, 4), Counter, spectral])
def test_recomputation_leaves_buffers_as_one_pass_makes_them(tmp_path: Path, norm: Any) -> None:
    found = []

    def train(trial: Any) -> None:
        torch.manual_seed(3)
        model: Any = Normed(norm)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = trial.prepare(model, optimizer)
        for x, _ in batches():
            trial.backward(model(x).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        found.append({name: value.clone() for name, value in model.state_dict().items()})

    for mode in ("none", "layers", "selective"):
        good(tmp_path / mode, train, activation_checkpointing=mode)
    for other in found[1:]:
        for name, value in found[0].items():
            assert torch.allclose(value, other[name], atol=1e-6), name


@pytest.mark.parametrize("own_generator", [False, True])
def test_a_restored_loop_goes_on_with_order_dropout_and_schedule(
    tmp_path: Path, own_generator: bool
) -> None:
    seen: dict[str, list[Any]] = {}

    def train(trial: Any, name: str, cut: bool) -> None:
        torch.manual_seed(5)
        data = torch.utils.data.TensorDataset(torch.arange(12.0)[:, None])
        generator = torch.Generator().manual_seed(9) if own_generator else None
        loader: Any = torch.utils.data.DataLoader(data, 5, shuffle=True, generator=generator)
        model: Any = nn.Sequential(nn.Dropout(0.5), nn.Linear(1, 1))
        optimizer: Any = torch.optim.SGD(model.parameters(), 1e-3)
        scheduler: Any = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        earlier = trial.restore() if own_generator else None  # before or after `prepare`
        model, optimizer, loader, scheduler = trial.prepare(model, optimizer, loader, scheduler)
        state = earlier if own_generator else trial.restore()
        if state:
            assert sorted(state) == ["at", "model", "optimizer"]
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        for epoch in range(state["at"][0] if state else 0, 4):
            for index, (x,) in enumerate(loader, 1):
                if state and [epoch, index] <= state["at"]:
                    continue
                loss = model(x).square().mean()
                trial.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                order = x.flatten().tolist()
                seen.setdefault(name, []).append((order, loss.item(), scheduler.last_epoch))
                trial.report(epoch * len(loader) + index, loss=loss)
                if index % parts == 0:
                    both = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    trial.save({**both, "at": [epoch, index]})
                if cut and [epoch, index] == [1, 2 * parts]:
                    return
            scheduler.step()

    parts = 2 if own_generator else 1
    whole = good(tmp_path / "whole", partial(train, name="whole", cut=False), accumulation=parts)
    first = good(tmp_path / "cut", partial(train, name="cut", cut=True), accumulation=parts)
    outcome, rest = attempt(
        tmp_path / "cut", partial(train, name="cut", cut=False), number=2, accumulation=parts
    )
    assert outcome.failure is None, outcome.message
    assert seen["cut"] == seen["whole"]
    assert [one.step for one in (*first, *rest)] == [one.step for one in whole]


def test_a_state_that_is_no_mapping_comes_back_as_it_was(tmp_path: Path) -> None:
    def train(trial: Any) -> None:
        trial.prepare(net())
        for state in ([1, 2], None, {"a": 1}):
            trial.save(state)
            assert trial.restore() == state

    good(tmp_path, train)
