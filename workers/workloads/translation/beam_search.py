"""Greedy and beam search, batched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .inference import Decoder, best_tokens
from .model import Transformer
from .vocabulary import BOS, EOS, PAD

_SHRINK = 0.75  # finished sentences leave the batch if at most this share is unfinished
_SIZE_STEP = 4  # batch sizes are multiples of this, because each needs its own kernels
_GPU_INTERVAL = 8  # tokens between two looks at what is finished; the host waits for the GPU then


def look_interval(device: torch.device) -> int:
    """Tokens between two looks at what is finished; on CPUs a look costs nothing."""
    return 1 if device.type == "cpu" else _GPU_INTERVAL


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
    decoder = Decoder(model)
    device = model.output_weight.device
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    results: dict[int, list[int]] = {}
    for begin in range(0, len(order), search.batch):
        chosen = order[begin : begin + search.batch]
        rows = [torch.tensor(sources[i]) for i in chosen]
        source = pad_sequence(rows, batch_first=True, padding_value=PAD).to(device)
        room = search.max_length(source.shape[1], model.architecture.max_length)
        results.update(zip(chosen, decode(decoder, source, room, search), strict=True))
    return [results[i] for i in range(len(sources))]


def greedy(decoder: Decoder, source: Tensor, room: int, search: SearchOptions) -> list[list[int]]:
    """Greedy search for sources (b, s); finished sentences leave the batch."""
    state = decoder.start(source, 1, room)
    rows = torch.arange(len(source), device=source.device)
    output = torch.full((len(source), room), PAD, device=source.device)
    ids = torch.full_like(rows, BOS)
    done = torch.zeros_like(rows, dtype=torch.bool)
    interval = look_interval(source.device)
    for position in range(room):
        ids = decoder.step(ids, state).argmax(-1)
        output[rows, position] = ids
        done |= ids == EOS
        if (position + 1) % interval:
            continue
        kept = unfinished(done)
        if not len(kept):
            break
        if len(kept) < len(done):
            state.keep(kept)
            rows, ids, done = rows[kept], ids[kept], done[kept]
    return [_until_end(row) for row in output.tolist()]


def unfinished(done: Tensor) -> Tensor:
    """Rows (n,) of the batch that go on: all of `done` (b,), unless so few are unfinished."""
    left = len(done) - int(done.sum())
    size = -(-left // _SIZE_STEP) * _SIZE_STEP
    return done.int().argsort(stable=True)[: size if size <= _SHRINK * len(done) else len(done)]


def beam_search(
    decoder: Decoder, source: Tensor, room: int, search: SearchOptions
) -> list[list[int]]:
    """The best of `search.beam` hypotheses for each source of (b, s).

    A finished hypothesis keeps its place while its normalised score is among the best. The search
    for a sentence stops as soon as no unfinished hypothesis can overtake its best finished one, see
    `Beams.done`.
    """
    state = decoder.start(source, search.beam, room)
    beams = Beams.start(source, search)
    interval = look_interval(source.device)
    results: dict[int, list[int]] = {}
    for position in range(1, room + 1):
        state.follow(beams.extend(decoder.step(beams.ids[:, :, -1].flatten(), state)))
        if position % interval and position < room:
            continue
        done = beams.done(room) | (position == room)
        kept = unfinished(done)
        if len(kept) < len(done):
            results = {**beams.best(done), **results}
            state.keep(kept)
            beams.keep(kept)
        if not len(kept):
            break
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
    """

    search: SearchOptions
    sentences: Tensor
    ids: Tensor
    scores: Tensor
    lengths: Tensor
    finished: Tensor

    @classmethod
    def start(cls, source: Tensor, search: SearchOptions) -> Beams:
        """One empty hypothesis per row of ids (b, s); the other k - 1 have a score of -inf."""
        sentences = torch.arange(len(source), device=source.device)
        zeros = torch.zeros(len(source), search.beam, device=source.device)
        scores = torch.full_like(zeros, -torch.inf)
        scores[:, 0] = 0.0
        ids = torch.full_like(zeros[..., None], BOS, dtype=torch.long)
        return cls(search, sentences, ids, scores, zeros, zeros.bool())

    def extend(self, logits: Tensor) -> Tensor:
        """Extend the hypotheses by one token and keep the best k.

        Args:
            logits: (b * k, v).

        Returns:
            For each new hypothesis the index, 0 to k - 1, of the one that it continues, (b, k).
        """
        b, k = self.scores.shape
        found = best_tokens(logits.log_softmax(-1, dtype=torch.float32), k)
        logs, tokens = (part.view(b, k, -1) for part in found)
        # A finished hypothesis continues unchanged, by its first candidate only.
        finished = self.finished[..., None]
        logs.masked_fill_(finished, -torch.inf)
        logs[..., :1].masked_fill_(finished, 0.0)
        totals = self.scores[..., None] + logs
        lengths = self.lengths + ~self.finished
        best = (totals / self._penalty(lengths)[..., None]).flatten(1).topk(k).indices
        parent = best // logs.shape[-1]
        before = self.finished.gather(1, parent)
        token = tokens.flatten(1).gather(1, best).masked_fill(before, PAD)
        history = self.ids.gather(1, parent[..., None].expand(-1, -1, self.ids.shape[2]))
        self.ids = torch.cat([history, token[..., None]], dim=2)
        self.scores = totals.flatten(1).gather(1, best)
        self.lengths = lengths.gather(1, parent)
        self.finished = (token == EOS) | before
        return parent

    def done(self, room: int) -> Tensor:
        """Whether no unfinished hypothesis can overtake the best finished one, (b,)."""
        values = self.scores / self._penalty(self.lengths)
        finished = values.masked_fill(~self.finished, -torch.inf).amax(1)
        possible = self.scores / self._penalty(torch.full_like(self.lengths, room))
        possible = possible.masked_fill(self.finished, -torch.inf).amax(1)
        return self.finished.any(1) & (finished >= possible)

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
        for name in ("sentences", "ids", "scores", "lengths", "finished"):
            setattr(self, name, getattr(self, name)[rows])

    def _penalty(self, lengths: Tensor) -> Tensor:
        base = self.search.length_base
        return ((base + lengths) / (base + 1.0)) ** self.search.length_penalty


def _until_end(ids: list[int]) -> list[int]:
    """The ids before the first EOS or padding."""
    return ids[: next((i for i, token in enumerate(ids) if token in (EOS, PAD)), len(ids))]
