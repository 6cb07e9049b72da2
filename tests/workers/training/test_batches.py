"""Shares of batches on their way to a device."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from toy import Toy

from workers.data.batch import BatchShare, CountedRows, PlannedBatch, num_rows, rows_of
from workers.training.batches import BatchPosition, ahead, shares
from workers.workloads import WORKLOADS

log: list[tuple[Any, ...]] = []


class FakeStream:
    """A stream that writes down what waits for what."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.name = "computing" if device is None else "copying"

    def wait_event(self, event: FakeEvent) -> None:
        log.append(("wait", self.name, event.number, threading.current_thread().name))


class FakeEvent:
    made = 0

    def __init__(self) -> None:
        FakeEvent.made += 1
        self.number = FakeEvent.made

    def record(self, stream: FakeStream) -> None:
        log.append(("copied", stream.name, self.number, threading.current_thread().name))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies, streams and events of `torch.cuda` that write down what is done."""
    log.clear()
    FakeEvent.made = 0

    @contextmanager
    def on(stream: FakeStream):
        log.append(("begin", stream.name))
        yield

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        log.append(("pin", threading.current_thread().name))
        return tensor.clone()

    computing = FakeStream()
    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: computing)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda tensor, stream: log.append(("kept", stream.name))
    )
    real = torch.Tensor.to

    def to(tensor: torch.Tensor, device: torch.device, *, non_blocking: bool = False):
        log.append(("to", device.type, non_blocking))
        return real(tensor, "cpu")

    monkeypatch.setattr(torch.Tensor, "to", to)


def source(toy: Toy | None = None):
    toy = toy or Toy({}, {}, {})
    return shares(toy, BatchPosition(), 1, partial(BatchShare.of, toy, accumulation=2))


def test_the_loader_thread_copies_to_a_gpu_and_only_the_gpu_waits(cuda: None) -> None:
    with ahead(source(), torch.device("cuda:0"), 2) as shares_ahead:
        found = list(shares_ahead)
    assert len(found) == 10
    assert log[:6] == [
        ("begin", "copying"),
        *[("pin", "batches_0"), ("to", "cuda", True)] * 2,
        ("copied", "copying", 1, "batches_0"),
    ]
    assert not [entry for entry in log if entry[0] == "wait"]
    log.clear()
    found[3][1].ready()
    assert log == [("wait", "computing", 4, "MainThread"), *[("kept", "computing")] * 2]
    plain = list(source())
    for (place, share), (same, copied) in zip(plain, found, strict=True):
        assert place == same
        assert share.weight == copied.weight
        assert [part.num_items for part in share.parts] == [part.num_items for part in copied.parts]
        for part, other in zip(share.parts, copied.parts, strict=True):
            assert torch.equal(part["tokens"], other["tokens"])


def test_the_parts_of_a_share_are_its_rows_in_order() -> None:
    toy = Toy({"rows": 7}, {}, {})
    batch = next(toy.train_batches(0))
    found = [BatchShare.of(toy, batch, count=2, index=i, accumulation=2) for i in range(2)]
    assert [[len(part["tokens"]) for part in share.parts] for share in found] == [[1, 2], [2, 2]]
    joined = torch.cat([part["tokens"] for share in found for part in share.parts])
    assert torch.equal(joined, batch["tokens"])
    assert {share.weight for share in found} == {toy.weight(batch)}
    assert sum(part.num_items or 0 for share in found for part in share.parts) == found[0].weight


def test_more_ranks_than_rows_get_a_dummy() -> None:
    toy = Toy({"rows": 2}, {}, {})
    batch = next(toy.train_batches(0))
    found = [BatchShare.of(toy, batch, count=3, index=i, accumulation=4) for i in range(3)]
    assert sorted(share.real for share in found) == [False, True, True]
    assert [len(share.parts) for share in found] == [1, 1, 1]
    (dummy,) = [share for share in found if not share.real]
    assert dummy.mean(torch.tensor(3.0)) == 0.0


@pytest.mark.parametrize("name", ["translation", "image_classification", "sentiment"])
@pytest.mark.parametrize("option", [{}, {"augmentation": "flip_shift"}, {"batching": "bucketed"}])
def test_a_rank_builds_only_its_rows_and_they_are_those_of_the_batch(
    name: str, option: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = WORKLOADS.get(name)
    if not option.keys() <= kind.defaults.keys():
        pytest.skip(f"{name} has no such option")
    fixed = {**kind.smallest["fixed"], **option}
    given = (option, kind.smallest["data"], fixed)
    plain = list(kind(*given, seed=3).train_batches(1))
    built: list[int] = []
    rows = PlannedBatch.__init__

    def counting(self: PlannedBatch, num_rows: int, num_items: int, build: Any) -> None:
        def counted(part: slice) -> Any:
            found = build(part)
            built.append(len(next(iter(found.values()))))
            return found

        rows(self, num_rows, num_items, counted)

    monkeypatch.setattr(PlannedBatch, "__init__", counting)
    workload = kind(*given, seed=3)
    for batch, whole in zip(workload.train_batches(1), plain, strict=True):
        total = num_rows(whole)
        expected = workload.weight(dict(whole))
        parts = [rows_of(batch, 3, index)[0] for index in range(3)] if total >= 3 else []
        assert built == [len(next(iter(part.values()))) for part in parts]
        assert sum(built) == total or not parts
        built.clear()
        share = BatchShare.of(workload, batch, count=2, index=1)
        assert share.weight == expected
        assert built == [total - total // 2], "the weight needs no row"
        built.clear()
        for key in whole if parts else ():
            assert torch.equal(torch.cat([part[key] for part in parts]), whole[key]), key


def test_rows_keep_their_count_on_the_way() -> None:
    rows = CountedRows(tokens=torch.ones(2, 3))
    rows.num_items = 5
    assert rows.to(torch.device("cpu")).num_items == 5
