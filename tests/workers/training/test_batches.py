"""Shares of batches on their way to a device."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
import torch
from toy import Toy

from workers.batches import BatchShare, CountedRows, PlannedBatch, num_rows, rows_of
from workers.training.trainer import ahead, shares
from workers.workloads import WORKLOADS


@pytest.mark.parametrize("depth", [0, 2])
def test_shares_ahead_are_the_same_and_lie_in_locked_memory(
    depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def source() -> Any:
        toy = Toy({}, {}, {})
        return shares(toy, (0, 3), 1, partial(BatchShare.of, toy, accumulation=2))

    pinned: list[str] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(threading.current_thread().name)
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    with ahead(source(), torch.device("cuda:0"), depth) as prepared:
        found = list(prepared)
    plain = list(source())
    assert [place for place, _ in plain] == [(0, index) for index in range(3, 10)]
    assert len(pinned) == 14
    assert ("MainThread" in pinned) == (depth == 0)
    for (place, share), (same, copied) in zip(plain, found, strict=True):
        assert (place, share.weight) == (same, copied.weight)
        for part, other in zip(share.parts, copied.parts, strict=True):
            assert part.num_items == other.num_items
            assert torch.equal(part["tokens"], other["tokens"])


def test_an_error_of_the_loader_comes_at_its_position() -> None:
    def source() -> Any:
        yield (0, 0), "share"
        raise ValueError("no such file")

    with ahead(source(), torch.device("cpu"), 2) as prepared:
        assert next(prepared) == ((0, 0), "share")
        with pytest.raises(ValueError, match="no such file"):
            next(prepared)


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
