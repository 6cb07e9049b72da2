"""A block of a small GPT."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS = 64, 4


class Attention(nn.Module):
    """Causal attention, input and output (rows, positions, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Each position sees itself and those before."""
        parts = self.into(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.out(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and two linear layers, each around a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleDict({name: nn.LayerNorm(WIDTH) for name in ("a", "b")})
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Of the same shape."""
        x = x + self.attention(self.norms["a"](x))
        return x + self.down(functional.gelu(self.up(self.norms["b"](x))))
