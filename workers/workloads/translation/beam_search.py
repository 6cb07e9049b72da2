"""Greedy and beam search, batched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .inference import Stepper, best_tokens
from .matrix_products import fast_products
from .model import Transformer
from .vocabulary import BOS, EOS, PAD

_SHRINK = 0.75  # finished sentences leave the batch if at most this share is unfinished
_SIZE_STEP = 4  # batch sizes are rounded up to a multiple of this
_GPU_INTERVAL = 8  # tokens between two looks at what is finished; the host waits for the GPU then


def look_interval(device: torch.device) -> int:
    """Tokens between two looks at what is finished; on CPUs a look costs nothing."""
    return 1 if device.type == "cpu" else _GPU_INTERVAL


def shrunk(left: int, size: int) -> int:
    """The new size of a batch of `size` that has `left` unfinished sentences.

    Sizes are rounded up, because each size needs its own kernels.
    """
    few = left if left <= 2 else -(-left // _SIZE_STEP) * _SIZE_STEP
    return few if left <= _SHRINK * size else size


def rows_first(wanted: Tensor, count: int) -> Tensor:
    """Indices of `count` rows; the wanted ones (b,) come first."""
    return wanted.int().argsort(descending=True, stable=True)[:count]


@dataclass(frozen=True)
class SearchOptions:
    """Options of the search for translations.

    Args:
        beam: hypotheses per sentence; 1 is greedy search.
        length_penalty, length_base: a and b of the penalty ((b + length) / (b + 1))^a, which
            divides the log-probability of a hypothesis (Wu et al. 2016,
            https://arxiv.org/abs/1609.08144, section 7, with b = 5; Sockeye uses b =
            0). a = 0 turns it off.
        max_ratio, max_extra: a translation has at most ratio * source length + extra tokens, EOS
            included.
        batch: sentences decoded at once.
    """

    beam: int = 1
    length_penalty: float = 1.0
    max_ratio: float = 2.0
    max_extra: int = 10
    batch: int = 256
    length_base: float = 5.0

    def max_length(self, source_length: int, limit: int) -> int:
        """Maximum number of target tokens for a source of the given length."""
        return max(1, min(limit, int(self.max_ratio * source_length) + self.max_extra))


@torch.inference_mode()
def translate(
    model: Transformer, sources: Sequence[Sequence[int]], search: SearchOptions
) -> list[list[int]]:
    """Ids of the best translation of each source, without EOS.

    Sentences of similar length are decoded together; results are in the order of the sources.

    Args:
        model: in eval mode, on its device.
        sources: ids that end in EOS.
    """
    decode = greedy if search.beam == 1 else beam_search
    device = model.embedding.tokens.weight.device
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    results: dict[int, list[int]] = {}
    with fast_products(device):
        stepper = Stepper(model)
        for begin in range(0, len(order), search.batch):
            chosen = order[begin : begin + search.batch]
            longest = len(sources[chosen[0]])
            source = torch.tensor(
                [[*sources[i], *[PAD] * (longest - len(sources[i]))] for i in chosen]
            ).to(device)
            room = search.max_length(longest, model.architecture.max_length)
            results.update(zip(chosen, decode(stepper, source, room, search), strict=True))
    return [results[i] for i in range(len(sources))]


def greedy(stepper: Stepper, source: Tensor, room: int, search: SearchOptions) -> list[list[int]]:
    """Greedy search for sources (b, s); finished sentences leave the batch."""
    state = stepper.start(source, 1, room)
    rows = torch.arange(len(source), device=source.device)
    output = torch.full((len(source), room), PAD, device=source.device)
    ids = torch.full_like(rows, BOS)
    going = torch.ones_like(rows, dtype=torch.bool)
    interval = look_interval(source.device)
    for position in range(room):
        ids = EOS + stepper.score(stepper.step(ids, state))[:, EOS:].argmax(-1)
        output[rows, position] = ids
        going &= ids != EOS
        if (position + 1) % interval:
            continue
        left = int(going.sum())
        if left == 0:
            break
        if (size := shrunk(left, len(ids))) < len(ids):
            kept = rows_first(going, size)
            state.keep(kept)
            rows = rows[kept]
            ids = ids[kept]
            going = going[kept]
    return [_until_end(row) for row in output.tolist()]


def beam_search(
    stepper: Stepper, source: Tensor, room: int, search: SearchOptions
) -> list[list[int]]:
    """The best of `search.beam` hypotheses for each source of (b, s).

    A finished hypothesis keeps its place while its normalised score is among the best. The search
    for a sentence stops as soon as no unfinished hypothesis can overtake its best finished one, see
    `Beams.done`.
    """
    state = stepper.start(source, search.beam, room)
    interval = look_interval(source.device)
    beams = Beams.start(source, search, looks=interval == 1)
    results: dict[int, list[int]] = {}
    for position in range(room):
        logits = stepper.score(stepper.step(beams.last(), state))[:, EOS:]
        state.follow(beams.extend(logits))
        if (position + 1) % interval and position + 1 < room:
            continue
        done = (
            beams.done(room)
            if position + 1 < room
            else torch.ones_like(beams.sentences, dtype=torch.bool)
        )
        if done is None:
            continue
        left = len(done) - int(done.sum())
        if (size := shrunk(left, len(done))) < len(done):
            results = {**beams.best(done), **results}
            if left == 0:
                break
            kept = rows_first(~done, size)
            state.keep(kept)
            beams.keep(kept)
    return [results[i] for i in range(len(source))]


@dataclass
class Beams:
    """Hypotheses of b sentences, k each.

    Attributes:
        sentences: positions in the original batch, (b,).
        ids: tokens so far, (b, k, t).
        scores: summed log-probabilities, (b, k).
        lengths: numbers of tokens including EOS, (b, k).
        finished: whether a hypothesis has ended, (b, k).
        any_finished: whether any hypothesis may be finished.
        looks: whether `done` finds out if any hypothesis is finished, instead of assuming it.
    """

    search: SearchOptions
    sentences: Tensor
    ids: Tensor
    scores: Tensor
    lengths: Tensor
    finished: Tensor
    any_finished: bool = False
    looks: bool = True

    @classmethod
    def start(cls, source: Tensor, search: SearchOptions, *, looks: bool = True) -> Beams:
        """One empty hypothesis per row of ids (b, s); the other k - 1 have a score of -inf."""
        shape = (len(source), search.beam)
        device = source.device
        scores = torch.full(shape, -torch.inf, device=device)
        scores[:, 0] = 0.0
        return cls(
            search,
            sentences=torch.arange(len(source), device=device),
            ids=torch.full((*shape, 1), BOS, device=device),
            scores=scores,
            lengths=torch.zeros(shape, device=device),
            finished=torch.zeros(shape, dtype=torch.bool, device=device),
            any_finished=not looks,
            looks=looks,
        )

    def last(self) -> Tensor:
        """The last id of each hypothesis, (b * k,)."""
        return self.ids[:, :, -1].flatten()

    def extend(self, logits: Tensor) -> Tensor:
        """Extend the hypotheses by one token and keep the best k.

        Args:
            logits: (b * k, n) for the entries of the vocabulary from EOS on.

        Returns:
            For each new hypothesis the index, 0 to k - 1, of the one that it continues, (b, k).
        """
        b, k = self.scores.shape
        found = best_tokens(logits.log_softmax(-1, dtype=torch.float32), k)
        logs, columns = (x.view(b, k, -1) for x in found)
        tokens = EOS + columns
        lengths = self.lengths + ~self.finished
        if self.any_finished:
            self._stay(logs, tokens)
        totals = logs.add_(self.scores[..., None])
        ranked = totals
        if self.any_finished:  # else all lengths are equal
            ranked = totals / self._penalty(lengths)[..., None]
        best = ranked.flatten(1).topk(k).indices
        parent = best // logs.shape[-1]
        token = tokens.flatten(1).gather(1, best)
        self.scores = totals.flatten(1).gather(1, best)
        self.lengths = lengths.gather(1, parent)
        self._append(parent, token)
        return parent

    def _stay(self, logs: Tensor, tokens: Tensor) -> None:
        """Let finished hypotheses continue unchanged, by the first candidate of (b, k, k) only."""
        finished = self.finished[..., None]
        logs.masked_fill_(finished, -torch.inf)
        logs[..., :1].masked_fill_(finished, 0.0)
        tokens.masked_fill_(finished, EOS)

    def _append(self, parent: Tensor, token: Tensor) -> None:
        """Append tokens (b, k) to the ids of their parent hypotheses."""
        before = self.finished.gather(1, parent)
        history = self.ids.gather(1, parent[..., None].expand(-1, -1, self.ids.shape[2]))
        self.ids = torch.cat([history, token.masked_fill(before, PAD)[..., None]], dim=2)
        self.finished = (token == EOS) | before

    def done(self, room: int) -> Tensor | None:
        """Whether no unfinished hypothesis of a sentence can overtake its best finished one, (b,).

        None if no hypothesis of any sentence is finished.
        """
        self.any_finished = not self.looks or bool(self.finished.any())
        if not self.any_finished:
            return None
        values = self.scores / self._penalty(self.lengths)
        finished = values.masked_fill(~self.finished, -torch.inf).amax(1)
        most = self._penalty(torch.full_like(self.lengths, room))
        return finished >= (self.scores / most).masked_fill(self.finished, -torch.inf).amax(1)

    def best(self, which: Tensor) -> dict[int, list[int]]:
        """The best hypothesis of the given sentences, a finished one if any, by position."""
        unfinished = ~self.finished & self.finished.any(1, keepdim=True)
        values = (self.scores / self._penalty(self.lengths)).masked_fill(unfinished, -torch.inf)
        rows = values.argmax(1)[:, None, None].expand(-1, 1, self.ids.shape[2])
        ids = self.ids.gather(1, rows)[:, 0, 1:]
        pairs = zip(self.sentences[which].tolist(), ids[which].tolist(), strict=True)
        return {place: _until_end(row) for place, row in pairs}

    def keep(self, rows: Tensor) -> None:
        """Keep only the given sentences."""
        self.sentences = self.sentences[rows]
        self.ids = self.ids[rows]
        self.scores = self.scores[rows]
        self.lengths = self.lengths[rows]
        self.finished = self.finished[rows]

    def _penalty(self, lengths: Tensor) -> Tensor:
        base = self.search.length_base
        return ((base + lengths) / (base + 1.0)) ** self.search.length_penalty


def _until_end(ids: list[int]) -> list[int]:
    """The ids before the first EOS or padding."""
    return ids[: next((i for i, token in enumerate(ids) if token in (EOS, PAD)), len(ids))]
