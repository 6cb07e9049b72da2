"""A script that trains a small GPT, with the habits of nanoGPT's train.py.

Settings are globals. Batches are random pieces of an array of token numbers. The next one is
fetched before the backward pass, gradients are accumulated by hand, the learning rate is set by
hand, and the script makes its own scaler, autocast, compilation and DDP.
"""

from __future__ import annotations

import math
import os
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks.training.loops.block import Block

eval_interval = 10
eval_iters = 2
batch_size, block_size = 16, 32
n_layer, vocab_size = 2, 96
gradient_accumulation_steps = 1
learning_rate, min_lr = 1e-3, 1e-4
warmup_iters, lr_decay_iters = 5, 40
weight_decay, beta1, beta2, grad_clip = 0.1, 0.9, 0.95, 1.0
dtype = "float32"
compiled = False
device = "cpu"
seed = 1337

tokens = ((np.arange(4000) ** 2) % vocab_size).astype(np.uint16)
data = {"train": tokens[:3600], "val": tokens[3600:]}


class GPT(nn.Module):
    """Predicts the next token: logits, and the loss if there are targets."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, 64), nn.Embedding(block_size, 64)
        self.h = nn.ModuleList(Block() for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(64)
        self.lm_head = nn.Linear(64, vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        if targets is None:
            return logits, None
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Matrices decay, vectors do not."""
        params = [p for p in self.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in params if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=learning_rate, betas=(beta1, beta2))


def get_batch(split: str) -> tuple[Tensor, Tensor]:
    """Random pieces, and the same one token later."""
    source = data[split]
    ix = torch.randint(len(source) - block_size - 1, (batch_size,))
    x = torch.stack([torch.from_numpy(source[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack(
        [torch.from_numpy(source[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix]
    )
    return x.to(device), y.to(device)


@torch.no_grad()
def estimate_loss(model: nn.Module, ctx: Any) -> dict[str, float]:
    """The mean loss of some batches of each part of the data."""
    out = {}
    drawn = torch.get_rng_state()
    model.eval()
    for split in data:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            x, y = get_batch(split)
            with ctx:
                _, loss = model(x, y)
            losses[k] = loss.item()
        out[split] = float(losses.mean())
    model.train()
    torch.set_rng_state(drawn)
    return out


def get_lr(it: int) -> float:
    """Linear warm-up, then half a cosine."""
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = min(1.0, (it - warmup_iters) / (lr_decay_iters - warmup_iters))
    return min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


def train(max_iters: int) -> list[float]:
    """Train for so many updates; their losses are returned, or reported by a trial."""
    ddp = int(os.environ.get("RANK", -1)) != -1
    if ddp:
        dist.init_process_group("gloo")
    torch.manual_seed(seed)
    ctx = torch.autocast("cpu", torch.bfloat16) if dtype == "bfloat16" else nullcontext()
    model: Any = GPT().to(device)
    scaler = torch.amp.GradScaler(device, enabled=dtype == "float16")
    optimizer = model.configure_optimizers()
    if compiled:
        model = torch.compile(model)
    if ddp:
        model = DistributedDataParallel(model)
    raw_model = model.module if ddp else model
    found = []
    iter_num, best_val_loss = 0, 1e9
    x, y = get_batch("train")
    while True:
        lr = get_lr(iter_num)
        for param_group in optimizer.param_groups:
            param_group["lr"] = lr
        if iter_num % eval_interval == 0:
            losses = estimate_loss(model, ctx)
            if losses["val"] < best_val_loss:
                best_val_loss = losses["val"]
                checkpoint = {"model": raw_model.state_dict(), "iter_num": iter_num}
        for micro_step in range(gradient_accumulation_steps):
            if ddp:
                model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
            with ctx:
                _, loss = model(x, y)
                loss = loss / gradient_accumulation_steps
            x, y = get_batch("train")
            scaler.scale(loss).backward()
        if grad_clip != 0.0:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        found.append(loss.item() * gradient_accumulation_steps)
        iter_num += 1
        if iter_num >= max_iters:
            break
    assert checkpoint["iter_num"] >= 0
    return found
