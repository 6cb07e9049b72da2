"""Greedy and beam search, batched, on a decoder that caches keys and values.

The beams of a sentence share their keys and values as the nodes of a tree: each node is a column,
and a mask marks the ancestors of each hypothesis. If hypotheses change places, only the mask is
reordered. All beams of a sentence attend in one product, which suits the usual 2 to 20 beams.

Shapes: b sentences, k beams, h heads, d head_dim, s source positions, v entries of the vocabulary,
n nodes, which is a multiple of 16, because softmax is several times faster then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from .model import DecoderLayer, Transformer, padding_mask
from .vocabulary import BOS, EOS, PAD

_SHRINK = 0.75  # finished sentences leave the batch if at most this share is unfinished
_SIZE_STEP = 4  # batch sizes are multiples of this, because each needs its own kernels
_GPU_INTERVAL = 8  # tokens between two looks at what is finished; the host waits for the GPU then
_ROWS = 64  # number of rows for which oneDNN packs the weights
_NODES = 16  # numbers of nodes are multiples of this
BLOCK = 64  # numbers of scores are multiples of this, see `best_tokens`


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


def product(weight: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor]:
    """Maps x (n, in) to (n, out) by a weight (out, in) in the format of autocast.

    On CPUs oneDNN packs the weight once, which is twice as fast as torch's default, and as exact.
    Later changes of weight and bias have no effect.
    """
    device = weight.device.type
    if torch.is_autocast_enabled(device):
        weight = weight.to(torch.get_autocast_dtype(device))
    weight, bias = weight.detach(), bias.detach().to(weight.dtype)
    library: Any = torch.backends.mkldnn
    packs = device == "cpu" and weight.dtype in (torch.float32, torch.bfloat16)
    if not (packs and library.is_available()):
        return lambda x: nn.functional.linear(x.to(weight.dtype), weight, bias).to(x.dtype)
    operations: Any = torch.ops.mkldnn
    packed = operations._reorder_linear_weight.default(weight, _ROWS)
    multiply = operations._linear_pointwise.default
    return lambda x: multiply(x.to(weight.dtype), packed, bias, "none", [], "").to(x.dtype)


@dataclass
class DecoderState:
    """The state of decoding.

    Args:
        past: keys and values of the nodes, (2, b, h, n, d) for each layer, with room for more.
        source: keys and values of the source, (2, b, h, s, d) for each layer.
        bias: of the scores of source positions, (b, 1, 1, s): 0, or -inf for padding.
        ancestors: of the scores of nodes, (b, k, n): 0 for those that a hypothesis continues, or
            -inf.
        places: position embeddings, (positions, width).
    """

    past: list[Tensor]
    source: list[Tensor]
    bias: Tensor
    ancestors: Tensor
    places: Tensor
    position: int = 0

    def follow(self, parents: Tensor) -> None:
        """Continue from the hypotheses `parents` (b, k), numbered 0 to k - 1."""
        self.ancestors = self.ancestors.gather(1, parents[..., None].expand_as(self.ancestors))

    def keep(self, sentences: Tensor) -> None:
        """Keep only the given sentences."""
        self.past = [part[:, sentences] for part in self.past]
        self.source = [part[:, sentences] for part in self.source]
        self.bias = self.bias[sentences]
        self.ancestors = self.ancestors[sentences]


class LayerStep:
    """The matrix products of a decoder layer."""

    def __init__(self, layer: DecoderLayer) -> None:
        self.layer = layer
        width = layer.self_norm.normalized_shape[0]
        self.project = product(*layer.self_attention.packed())
        weight, bias = layer.cross_attention.packed()
        self.query = product(weight[:width], bias[:width])
        self.memory = product(weight[width:], bias[width:])
        self.output, self.mix, self.inner, self.outer = (
            product(one.weight, one.bias)
            for one in (
                layer.self_attention.output,
                layer.cross_attention.output,
                layer.feed_forward.inner,
                layer.feed_forward.outer,
            )
        )

    def step(self, x: Tensor, state: DecoderState, past: Tensor, source: Tensor) -> Tensor:
        """Process one position x (b * k, width) of each hypothesis; same shape."""
        b, k, _ = state.ancestors.shape
        shape = (b, k, -1, past.shape[-1])
        query, *new = self.project(self.layer.self_norm(x)).chunk(3, -1)
        begin = state.position * k
        for part, one in zip(past, new, strict=True):
            part[:, :, begin : begin + k] = one.view(shape).transpose(1, 2)
        n = _rounded(begin + k)
        tree = state.ancestors[:, None, :, :n]
        x = x + self.output(_attend(query.view(shape), past[..., :n, :], tree))
        query = self.query(self.layer.cross_norm(x)).view(shape)
        x = x + self.mix(_attend(query, source, state.bias))
        return x + self.outer(self.inner(self.layer.feed_forward_norm(x)).relu_())


def _attend(query: Tensor, keys_values: Tensor, bias: Tensor) -> Tensor:
    """Attention of queries (b, k, h, d) over (2, b, h, n, d), with a bias of scores (b, h, k, n).

    Returns:
        Output (b * k, h * d).
    """
    query = query.transpose(1, 2)
    keys, values = keys_values
    if query.shape[2] == 1:  # for several queries on a CPU, torch's own attention is slower
        found = nn.functional.scaled_dot_product_attention(query, keys, values, bias)
        return found.flatten(1)
    scores = (query * query.shape[-1] ** -0.5) @ keys.transpose(2, 3)
    mixed: Tensor = scores.add_(bias).softmax(-1) @ values
    return mixed.transpose(1, 2).flatten(0, 1).flatten(1)


def _rounded(count: int) -> int:
    return -(-count // _NODES) * _NODES


class Decoder:
    """Decodes by a model in eval mode with any attention layout, one position at a time.

    Weights are copied to a fast layout; later changes of the model have no effect.
    """

    def __init__(self, model: Transformer) -> None:
        self.model = model
        weight = model.output_weight
        count = -len(weight) % BLOCK
        bias = weight.new_zeros(len(weight) + count)
        bias[:EOS] = bias[len(weight) :] = -math.inf  # padding, unknown and BOS never follow
        self.score = product(nn.functional.pad(weight, (0, 0, 0, count)), bias)
        layers = model.decoder.layers
        self.layers = [LayerStep(layer) for layer in layers if isinstance(layer, DecoderLayer)]

    def start(self, source: Tensor, beams: int, room: int) -> DecoderState:
        """Encode sources (b, s) and allocate `room` target positions of `beams` hypotheses each."""
        mask = padding_mask(source)
        memory = self.model.encode(source, mask)
        b, s, _ = memory.shape
        h, d = self.model.architecture.num_heads, self.model.architecture.head_dim
        found = [
            layer.memory(memory.flatten(0, 1)).view(b, s, 2, h, d).permute(2, 0, 3, 1, 4)
            for layer in self.layers
        ]
        nodes = _rounded(room * beams)
        past = [part.new_zeros(2, b, h, nodes, d) for part in found]
        bias = memory.new_zeros(mask.shape).masked_fill_(~mask, -math.inf)
        ancestors = memory.new_full((b, beams, nodes), -math.inf)
        places = self.model.embedding.places(room, source.device)
        kept = [part.contiguous() for part in found]
        return DecoderState(past, kept, bias, ancestors, places)

    def step(self, ids: Tensor, state: DecoderState) -> Tensor:
        """Decode ids (b * k,) at the next position.

        Returns:
            Logits (b * k, v) of what follows, with further columns of -inf.
        """
        k = state.ancestors.shape[1]
        begin = state.position * k
        state.ancestors.diagonal(begin, 1, 2).fill_(0.0)  # a new node is its own ancestor
        x = self.model.embedding(ids, state.places[state.position])
        for layer, past, source in zip(self.layers, state.past, state.source, strict=True):
            x = layer.step(x, state, past, source)
        state.position += 1
        return self.score(self.model.decoder.norm(x))


def best_tokens(logs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row (m, v) and their columns, (m, count) each.

    They lie in the blocks with the largest maxima, so only those blocks are sorted. v is a multiple
    of `BLOCK`.
    """
    blocks = torch.unflatten(logs, 1, (-1, BLOCK)).amax(2)
    chosen = blocks.topk(min(count, blocks.shape[1])).indices
    columns = BLOCK * chosen[..., None] + torch.arange(BLOCK, device=logs.device)
    index = columns.flatten(1)
    values, places = logs.gather(1, index).topk(min(count, index.shape[1]))
    return values, index.gather(1, places)
