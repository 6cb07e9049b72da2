"""Batched greedy and beam search."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from .inference import Stepper
from .matrix_products import fast_products
from .model import Transformer
from .shortlist import Candidates, Shortlist
from .vocabulary import BOS, EOS, PAD

T = TypeVar("T")
_BLOCK = 64  # columns whose maximum is looked at first
_LEAST = 1e-9  # attention, whose logarithm is taken
_SHRINK = 0.75  # a batch is cut down to what is unfinished when no more than that share is left,
_STEP = 4  # rounded up to a multiple of this


@dataclass(frozen=True)
class SearchOptions:
    """How translations are searched for.

    Args:
        beam: hypotheses kept a sentence; 1 is greedy.
        length_penalty, length_base: a and b in ((b + length) / (b + 1))^a, by which a finished hypothesis's
            log-probability is divided (Wu et al. 2016, https://arxiv.org/abs/1609.08144, section 7, with a b of 5;
            Sockeye and CTranslate2 have 0); an a of 0 for none.
        coverage_penalty: c in c * sum over source positions of log(min(attention so far, 1)), which is added to that
            (ibidem); the attention is the mean of the last layer's heads; 0 for none. Only beams have it.
        max_ratio, max_extra: a translation has at most ratio * source length + extra tokens, EOS included.
        batch: sentences decoded at once.
    """

    beam: int = 1
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    max_ratio: float = 2.0
    max_extra: int = 10
    batch: int = 256
    length_base: float = 5.0

    def max_length(self, source_length: int, limit: int) -> int:
        """Most target tokens for a source of that length."""
        return max(1, min(limit, int(self.max_ratio * source_length) + self.max_extra))


Ranked = list[
    tuple[float, list[int]]
]  # normalised score and ids of each hypothesis of a sentence, best first


def translate(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    search: SearchOptions,
    shortlist: Shortlist | None = None,
) -> list[list[int]]:
    """Ids of the best translation of each source, without EOS; sources are ids that end in EOS.

    Sentences of similar length are decoded together, and results come in the order of the sources. The model is in
    eval mode on its device. With a shortlist, a batch is translated with the entries that it has for its sources.
    """
    if search.beam == 1:
        return _by_length(greedy, model, sources, search, shortlist)
    return [found[0][1] for found in nbest(model, sources, search, shortlist)]


def nbest(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    search: SearchOptions,
    shortlist: Shortlist | None = None,
) -> list[Ranked]:
    """As `translate`, with up to `search.beam` translations of each source, best first."""
    return _by_length(beam_search, model, sources, search, shortlist)


@torch.inference_mode()
def _by_length(
    decode: Callable[[Stepper, Tensor, int, SearchOptions, Candidates], list[T]],
    model: Transformer,
    sources: Sequence[Sequence[int]],
    search: SearchOptions,
    shortlist: Shortlist | None,
) -> list[T]:
    device = model.embedding.tokens.weight.device
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    results: dict[int, T] = {}
    with fast_products(device):
        stepper = Stepper(model, wants_attention=bool(search.coverage_penalty))
        for begin in range(0, len(order), search.batch):
            chosen = order[begin : begin + search.batch]
            longest = len(sources[chosen[0]])
            source = torch.tensor(
                [[*sources[i], *[PAD] * (longest - len(sources[i]))] for i in chosen]
            ).to(device)
            room = search.max_length(longest, model.architecture.max_length)
            candidates = Candidates.of(stepper, source, shortlist)
            results.update(
                zip(chosen, decode(stepper, source, room, search, candidates), strict=True)
            )
    return [results[i] for i in range(len(sources))]


def greedy(
    stepper: Stepper, source: Tensor, room: int, search: SearchOptions, candidates: Candidates
) -> list[list[int]]:
    """The likeliest next token, again and again, for ids (b, s); finished sentences leave the batch."""
    state = stepper.start(source, 1, room)
    rows = torch.arange(len(source), device=source.device)
    output = torch.full((len(source), room), PAD, device=source.device)
    ids, going = torch.full_like(rows, BOS), torch.ones_like(rows, dtype=torch.bool)
    for position in range(room):
        ids = candidates.ids[candidates.score(stepper.step(ids, state)).argmax(-1)]
        output[rows, position] = ids
        going &= ids != EOS
        left = int(going.sum())
        if left == 0:
            break
        if (size := _cut(left, len(ids))) < len(ids):
            kept = _first(going, size)
            state.keep(kept)
            rows, ids, going = rows[kept], ids[kept], going[kept]
    return [_until_end(row) for row in output.tolist()]


def beam_search(
    stepper: Stepper, source: Tensor, room: int, search: SearchOptions, candidates: Candidates
) -> list[Ranked]:
    """Up to `search.beam` hypotheses for each row of ids (b, s).

    A finished hypothesis keeps its place while its normalised score is among the best. A sentence is done when no
    unfinished hypothesis can still overtake its best finished one.
    """
    state = stepper.start(source, search.beam, room)
    beams = Beams.start(source, search)
    results: list[Ranked] = [[] for _ in range(len(source))]
    for position in range(room):
        logits = candidates.score(stepper.step(beams.last(), state))
        state.follow(beams.extend(logits, candidates.ids, state.attention))
        done = (
            beams.done(room)
            if position + 1 < room
            else torch.ones_like(beams.sentences, dtype=torch.bool)
        )
        if done is None:
            continue
        left = len(done) - int(done.sum())
        if (size := _cut(left, len(done))) < len(done):
            for i, ranked in beams.ranked(done):
                results[i] = results[i] or ranked
            if left == 0:
                break
            kept = _first(~done, size)
            state.keep(kept)
            beams.keep(kept)
    return results


def _cut(left: int, size: int) -> int:
    """To how many sentences a batch of `size` is cut when so many are unfinished; each number needs its own kernels."""
    few = left if left <= 2 else -(-left // _STEP) * _STEP
    return few if left <= _SHRINK * size else size


def _first(wanted: Tensor, count: int) -> Tensor:
    """So many rows, the wanted (b,) first."""
    return wanted.int().argsort(descending=True, stable=True)[:count]


@dataclass
class Beams:
    """Hypotheses of b sentences, k each.

    `ids` (b, k, t), `scores` (b, k) summed log-probabilities, `lengths` (b, k) with EOS, `finished` (b, k);
    `sentences` (b,) are places in the batch that was begun with. `coverage` (b, k, s) is the attention that each source
    position got, at least 1 for padding, and `bonus` (b, k) what the penalty makes of it.
    """

    search: SearchOptions
    sentences: Tensor
    ids: Tensor
    scores: Tensor
    lengths: Tensor
    finished: Tensor
    coverage: Tensor
    bonus: Tensor
    any_finished: bool = False  # as `done` saw it last: no need to look for it at every use

    @classmethod
    def start(cls, source: Tensor, search: SearchOptions) -> Beams:
        """One empty hypothesis for each row of ids (b, s); the others cannot win."""
        shape, device = (len(source), search.beam), source.device
        scores = torch.full(shape, -torch.inf, device=device)
        scores[:, 0] = 0.0
        lengths = torch.zeros(shape, device=device)
        ids = torch.full((*shape, 1), BOS, device=device)
        covered = (source == PAD).float()[:, None].expand(-1, search.beam, -1)
        places = torch.arange(len(source), device=device)
        return cls(
            search, places, ids, scores, lengths, lengths > 0, covered, torch.zeros_like(lengths)
        )

    def last(self) -> Tensor:
        """The last id of each hypothesis, (b * k,)."""
        return self.ids[:, :, -1].flatten()

    def extend(self, logits: Tensor, entries: Tensor, attention: Tensor | None = None) -> Tensor:
        """Take the best k continuations.

        Args:
            logits: (b * k, n) of the vocabulary's `entries` (n,), of which EOS is the first.
            attention: (b, k, s), see `coverage`.

        Returns:
            For each new hypothesis the one (b, k), of its sentence's k, that it continues.
        """
        b, k = self.scores.shape
        logs, columns = (
            x.view(b, k, -1) for x in best_tokens(logits.log_softmax(-1, dtype=torch.float32), k)
        )
        self._cover(attention)
        tokens, lengths = entries[columns], self.lengths + 1
        if self.any_finished:
            lengths = self.lengths + ~self.finished
            self._stay(logs, tokens)
        totals = logs.add_(self.scores[..., None])
        ranked = totals
        if self.any_finished or attention is not None:  # else all are of one length
            ranked = totals / self._penalty(lengths)[..., None] + self.bonus[..., None]
        best = ranked.flatten(1).topk(k).indices
        parent, token = best // logs.shape[-1], tokens.flatten(1).gather(1, best)
        self.scores, self.lengths = totals.flatten(1).gather(1, best), lengths.gather(1, parent)
        self._append(parent, token)
        if attention is not None:
            self.bonus = self.bonus.gather(1, parent)
            self.coverage = self.coverage.gather(1, parent[..., None].expand_as(self.coverage))
        return parent

    def _stay(self, logs: Tensor, tokens: Tensor) -> None:
        """A finished hypothesis goes on as it is, by the first of its continuations (b, k, k) alone."""
        finished = self.finished[..., None]
        logs.masked_fill_(finished, -torch.inf)
        logs[..., :1].masked_fill_(finished, 0.0)
        tokens.masked_fill_(finished, EOS)

    def _append(self, parent: Tensor, token: Tensor) -> None:
        """Tokens (b, k) behind the ids of the hypotheses that they continue."""
        shown, ended = token, token == EOS
        if self.any_finished:
            before = self.finished.gather(1, parent)
            shown, ended = token.masked_fill(before, PAD), ended | before
        history = self.ids.gather(1, parent[..., None].expand(-1, -1, self.ids.shape[2]))
        self.ids, self.finished = torch.cat([history, shown[..., None]], dim=2), ended

    def _cover(self, attention: Tensor | None) -> None:
        """Count what the hypotheses attend to; a finished one does no more."""
        if attention is not None:
            self.coverage = self.coverage + attention.masked_fill(self.finished[..., None], 0.0)
            covered = self.coverage.clamp(min=_LEAST, max=1.0).log()
            self.bonus = self.search.coverage_penalty * covered.sum(2)

    def done(self, room: int) -> Tensor | None:
        """(b,): whether the best finished hypothesis stays ahead of all that an unfinished one can become.

        None where no hypothesis of any sentence is finished.
        """
        self.any_finished = bool(self.finished.any())
        if not self.any_finished:
            return None
        finished = self._value().masked_fill(~self.finished, -torch.inf).amax(1)
        most = self._penalty(torch.full_like(self.lengths, room))
        hoped = (self.scores / most).masked_fill(self.finished, -torch.inf).amax(1)
        return finished >= hoped

    def ranked(self, which: Tensor) -> list[tuple[int, Ranked]]:
        """Place and hypotheses of those sentences; where any is finished, the unfinished ones are left out."""
        values = self._value().masked_fill(
            ~self.finished & self.finished.any(1, keepdim=True), -torch.inf
        )
        places, rows, scores = (x[which].tolist() for x in (self.sentences, self.ids, values))
        found = []
        for place, hypotheses, values_ in zip(places, rows, scores, strict=True):
            alive = [
                (v, _until_end(ids[1:]))
                for v, ids in zip(values_, hypotheses, strict=True)
                if v > -math.inf
            ]
            found.append((place, sorted(alive, key=lambda pair: -pair[0])))
        return found

    def keep(self, rows: Tensor) -> None:
        """Forget all sentences but those."""
        self.sentences, self.ids, self.scores = (
            self.sentences[rows],
            self.ids[rows],
            self.scores[rows],
        )
        self.lengths, self.finished = self.lengths[rows], self.finished[rows]
        self.coverage, self.bonus = self.coverage[rows], self.bonus[rows]

    def _value(self) -> Tensor:
        """What hypotheses are ranked by; the bonus is at most 0."""
        return self.scores / self._penalty(self.lengths) + self.bonus

    def _penalty(self, lengths: Tensor) -> Tensor:
        base = self.search.length_base
        return ((base + lengths) / (base + 1.0)) ** self.search.length_penalty


def best_tokens(logs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row (n, v) and their columns, (n, count) each.

    They lie in the blocks with the largest maxima, so that only those few are sorted.
    """
    width = logs.shape[1]
    count, blocks = min(count, width), width // _BLOCK
    if blocks <= count:
        values, columns = logs.topk(count)
        return values, columns
    maxima = torch.unflatten(logs[:, : _BLOCK * blocks], 1, (blocks, _BLOCK)).amax(2)
    chosen = maxima.topk(count).indices
    inside = _BLOCK * chosen[..., None] + torch.arange(_BLOCK, device=logs.device)
    index = inside.flatten(1)
    if width % _BLOCK:
        rest = torch.arange(_BLOCK * blocks, width, device=logs.device).expand(len(logs), -1)
        index = torch.cat([index, rest], 1)
    values, places = logs.gather(1, index).topk(count)
    return values, index.gather(1, places)


def _until_end(ids: list[int]) -> list[int]:
    """What is before the first EOS or padding."""
    return ids[: next((i for i, token in enumerate(ids) if token in (EOS, PAD)), len(ids))]
