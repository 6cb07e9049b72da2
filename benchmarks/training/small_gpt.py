"""A small GPT in a training loop in the manner of nanoGPT, whose speed has six knobs."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import count
from typing import Any

WIDTH, LAYERS, HEADS, LENGTH, VOCABULARY = 64, 2, 4, 64, 128


def train(trial: Any) -> None:
    """Train on random tokens until the trial is ended; a step is a token.

    Args:
        trial: `params` are `batch_size` (sequences), `accumulation` (parts of a batch), and the
            switches `bf16`, `fused`, `flash` and `recompute`.
    """
    import torch
    from torch import nn
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.checkpoint import checkpoint

    params = trial.params
    block = [
        nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True)
        for _ in range(LAYERS)
    ]
    embed, head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
    model = nn.ModuleList([embed, *block, head])
    optimizer = torch.optim.AdamW(model.parameters(), fused=params["fused"])
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    backend = SDPBackend.FLASH_ATTENTION if params["flash"] else SDPBackend.MATH
    tokens = torch.randint(VOCABULARY, (params["batch_size"], LENGTH + 1))
    for update in count(1):
        for part in tokens.chunk(params["accumulation"]):
            with ExitStack() as stack:
                stack.enter_context(sdpa_kernel([backend, SDPBackend.MATH]))
                stack.enter_context(torch.autocast("cpu", torch.bfloat16, enabled=params["bf16"]))
                hidden = embed(part[:, :-1])
                for layer in block:
                    if params["recompute"]:
                        hidden = checkpoint(layer, hidden, mask, use_reentrant=False)
                    else:
                        hidden = layer(hidden, src_mask=mask)
                logits = head(hidden).float().flatten(0, 1)
                loss = nn.functional.cross_entropy(logits, part[:, 1:].flatten())
                (loss / params["accumulation"]).backward()  # recomputes with the same kernels
        optimizer.step()
        optimizer.zero_grad()
        if update % 5 == 0:
            trial.report(step=update * tokens[:, 1:].numel(), loss=loss.item())
