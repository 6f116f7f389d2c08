"""GPT model similar to GPT-NeoX or Llama, in plain PyTorch, without code for parallel training.

Parts that a pipeline stage does not hold are None (embedding, head) or missing from `blocks`. The keys of `blocks` are
global layer numbers, so each parameter has the same name in every layout.

Shapes: b samples, s positions, h features, a query heads, g key-value heads, d = h/a features per head, w MLP width, V
vocabulary entries, t tensor-parallel ranks.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812  (the name everyone uses)
from torch import Tensor, nn

from hpcbench.contract.training import Model
from hpcbench.train.experts import ExpertMLP

Core = Callable[[Tensor, Tensor, Tensor], Tensor]
Places = Callable[[int, torch.device], Tensor]


def whole_sample(positions: int, device: torch.device) -> Tensor:
    """Return the positions [s] of a whole sample, for a rank that holds all positions."""
    return torch.arange(positions, device=device)


class Embedding(nn.Module):
    """Token embedding, plus learned position embedding if enabled."""

    def __init__(self, config: Model, seq_len: int) -> None:
        super().__init__()
        self.tokens = _table(config.vocab, config.hidden)
        self.positions = _table(seq_len, config.hidden) if config.positions == "learned" else None
        self.places: Places = whole_sample

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the embedding vectors, [b, s, h], of tokens, [b, s]."""
        x: Tensor = self.tokens(tokens)  # [b, s] -> [b, s, h]
        if self.positions is not None:
            x = x + self.positions(self.places(tokens.shape[1], tokens.device))
        return x


def _table(rows: int, columns: int) -> nn.Embedding:
    """Create an embedding table without PyTorch's default initialization.

    On the meta device, the default initialization would import PyTorch's compiler, which takes a second on each rank.
    """
    table: nn.Embedding = nn.Embedding.from_pretrained(  # type: ignore[no-untyped-call]
        torch.zeros(rows, columns), freeze=False
    )
    return table


class Attention(nn.Module):
    """Causal self-attention.

    If there are fewer key-value heads than query heads, the layer computes grouped-query attention. The rows of `qkv`
    are ordered by group. Each group consists of its query heads, its key head and its value head. A contiguous block of
    rows therefore contains whole groups.
    """

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.queries = config.heads // config.groups
        """Number of query heads per group."""
        rotated = int(self.head_dim * config.rotary_fraction) if config.positions == "rotary" else 0
        self.rotated = rotated - rotated % 2
        self.rotary_base = config.rotary_base
        self.qkv = nn.Linear(config.hidden, config.qkv_width, bias=config.bias)
        self.out = nn.Linear(config.hidden, config.hidden, bias=config.bias)
        self.core: Core = attend
        self.places: Places = whole_sample

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, [b, s, h], for the input x, [b, s, h]."""
        qkv = self.qkv(x)  # [b, s, h] -> [b, s, (a + 2g)d/t]; x may contain only some of the positions
        b, s, _ = qkv.shape
        groups = qkv.view(b, s, -1, self.queries + 2, self.head_dim)  # [b, s, g/t, a/g + 2, d]
        queries, k, v = groups.permute(0, 2, 3, 1, 4).split((self.queries, 1, 1), dim=2)  # each [b, g/t, ..., s, d]
        q, k, v = queries.flatten(1, 2), k.squeeze(2), v.squeeze(2)  # [b, a/t, s, d], and [b, g/t, s, d] each
        if self.rotated:
            angles = partial(rotate, rotated=self.rotated, places=self.places(s, x.device), base=self.rotary_base)
            q, k = angles(q), angles(k)
        y = self.core(q, k, v)
        out: Tensor = self.out(y.transpose(1, 2).reshape(b, s, -1))  # [b, s, h/t] -> [b, s, h]
        return out


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute the core of causal attention: scores, softmax, and the product with the values.

    The shape of queries is [b, a, s, d]. The shape of keys and values is [b, g, s, d]. Each key-value head serves the
    a/g query heads of its group.
    """
    grouped = k.shape[1] < q.shape[1]
    if grouped and q.device.type == "cuda" and q.dtype not in (torch.float16, torch.bfloat16):
        # Only kernels for 16-bit dtypes support grouped queries. For other dtypes, PyTorch would store all scores.
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        grouped = False
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)


def rotate(x: Tensor, rotated: int, places: Tensor, base: float = 10000.0) -> Tensor:
    """Apply rotary position embedding to the first `rotated` features of x, [b, a, s, d].

    See arXiv 2104.09864, section 3.4.2. `places`, [s], contains the position of each token in its sample.
    """
    half = rotated // 2
    inverse = base ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angle = places.to(torch.float64)[:, None] * inverse  # [s, half]
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second, unrotated = x[..., :half], x[..., half:rotated], x[..., rotated:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, unrotated), dim=-1)


class MLP(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, config: Model, width: int) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.up = nn.Linear(config.hidden, (2 if config.gated else 1) * width, bias=config.bias)
        self.down = nn.Linear(width, config.hidden, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, [b, s, h], for the input x, [b, s, h]."""
        y: Tensor = self.down(self.activation(self.up(x)))  # [b, s, h] -> [b, s, w/t] -> [b, s, h]
        return y


def swiglu(x: Tensor) -> Tensor:
    """Apply SwiGLU to pairs (gate, value) of neighboring features: [..., 2w] -> [..., w].

    Gate and value are neighbors, so a contiguous block of the layer's rows contains whole pairs.
    """
    gate, value = x.view(*x.shape[:-1], x.shape[-1] // 2, 2).unbind(-1)
    return F.silu(gate) * value


def squared_relu(x: Tensor) -> Tensor:
    """Return the square of the ReLU (arXiv 2109.08668)."""
    return F.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "squared-relu": squared_relu, "swiglu": swiglu}
"""Activation functions, keyed by `Model.activation`."""


def make_norm(config: Model) -> nn.LayerNorm | nn.RMSNorm:
    """Create a norm for the residual stream."""
    return nn.LayerNorm(config.hidden, eps=EPS) if config.norm == "layernorm" else nn.RMSNorm(config.hidden, eps=EPS)


EPS = 1e-5
"""Term in the denominator of norms, which prevents division by zero."""


def mlp_of(config: Model, layer: int) -> nn.Module:
    """Create the MLP or the mixture-of-experts MLP of a layer (counted from 0)."""
    if config.experts is None or not config.experts.in_layer(layer):
        return MLP(config, config.middle)
    shared = MLP(config, config.shared_middle) if config.experts.shared else None
    return ExpertMLP(config.hidden, config.experts, partial(MLP, config, config.expert_middle), shared)


class Block(nn.Module):
    """Transformer block. Attention and MLP are sequential or parallel (parallel residual, as in GPT-J and GPT-NeoX)."""

    def __init__(self, config: Model, layer: int) -> None:
        super().__init__()
        self.parallel_residual = config.parallel_residual
        self.norm1 = make_norm(config)
        self.attention = Attention(config)
        self.norm2 = make_norm(config)
        self.mlp = mlp_of(config, layer)

    def forward(self, x: Tensor) -> Tensor:
        """Return the residual stream after the block, [b, s, h]."""
        if self.parallel_residual:
            y: Tensor = x + self.attention(self.norm1(x)) + self.mlp(self.norm2(x))
            return y
        x = x + self.attention(self.norm1(x))
        z: Tensor = x + self.mlp(self.norm2(x))
        return z


class GPT(nn.Module):
    """The whole model, or one pipeline stage.

    Parameters
    ----------
    config
        Sizes of the model.
    seq_len
        Maximum sequence length in tokens.
    """

    tensor_parallel = {  # noqa: RUF012  (read-only)
        "embedding.tokens": "vocabulary",
        "embedding.positions": "positions",
        "attention.qkv": "column",
        "attention.out": "row",
        "mlp.up": "column",
        "mlp.down": "row",
        "shared.up": "column",
        "shared.down": "row",
        "experts.*.up": "expert column",
        "experts.*.down": "expert row",
        "router": "router",
        "norm1": "norm",
        "norm2": "norm",
        "norm": "norm",
        "head": "head",
    }
    """Role of each layer in tensor parallelism. In a layer name, a star matches any number."""

    def __init__(self, config: Model, seq_len: int) -> None:
        super().__init__()
        self.config = config
        self.embedding: Embedding | None = Embedding(config, seq_len)
        self.blocks = nn.ModuleDict({str(i): Block(config, i) for i in range(config.layers)})
        self.norm: nn.Module | None = make_norm(config)
        self.head: nn.Linear | None = nn.Linear(config.hidden, config.vocab, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Run the forward pass of the stage.

        The input is tokens, [b, s], on the first stage and activations, [b, s, h], on other stages. The output is
        logits, [b, s, V/t], on the last stage and activations on other stages.
        """
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks.values():
            x = block(x)
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x))
        return x


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats over all positions, in fp32 or better.

    The shape of `logits` is [b, s, V], and the shape of `targets` is [b, s].
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(wide.flatten(0, 1), targets.flatten())
