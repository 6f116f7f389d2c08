"""Mixture-of-experts MLP in plain PyTorch, for a single process.

Shapes: b samples, s positions, h features, E experts, k experts per token.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from hpcbench.contract.experts import Experts
from hpcbench.parallel.experts.penalty import Penalty
from hpcbench.parallel.experts.routing import Losses, Routing, Shares, losses, own_shares, route
from hpcbench.parallel.experts.spread import Apply, Shared

Watch = Callable[[Routing, Losses], None]


class ExpertMLP(nn.Module):
    """A router and its expert MLPs.

    Attributes
    ----------
    apply_experts : callable
        Function that computes the output of the experts. Parallel training replaces this function.
    shares : callable
        Function that computes the experts' shares over whole samples, for the router losses. Context parallelism
        replaces this function, because each rank then holds only some positions of a sample.
    penalty : Penalty
        Object that adds the router losses to the main loss.
    watch : callable or None
        Callback that is called after every forward pass.
    """

    def __init__(
        self, hidden: int, settings: Experts, expert: Callable[[], nn.Module], shared: nn.Module | None
    ) -> None:
        super().__init__()
        self.settings = settings
        self.router = nn.Linear(hidden, settings.count, bias=False)
        self.experts = nn.ModuleDict({str(i): expert() for i in range(settings.count)})
        self.shared = shared
        self.apply_experts: Apply = apply_in_turn
        self.shares: Shares = own_shares
        self.penalty = Penalty()
        self.watch: Watch | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, [b, s, h], for the input x, [b, s, h]. The router computes in fp32 or better."""
        wide = torch.promote_types(x.dtype, torch.float32)
        logits = F.linear(x.to(wide), self.router.weight.to(wide))  # [b, s, E]
        routing = route(logits, self.settings)
        router_losses = losses(logits, routing.expert, self.shares)
        if self.watch is not None:
            self.watch(routing, router_losses)
        weighed = self.settings.balance * router_losses.balance + self.settings.z_loss * router_losses.z
        routing = routing._replace(gate=self.penalty.add(routing.gate, weighed))
        return self.apply_experts(x, routing, self.experts, self.shared)


def apply_in_turn(x: Tensor, routing: Routing, experts: nn.ModuleDict, shared: Shared) -> Tensor:
    """Apply each expert in turn to the tokens that it accepted. All experts must be on this rank."""
    flat = x.reshape(-1, x.shape[2])
    expert, gate, accepted = (
        choice.reshape(len(flat), -1) for choice in (routing.expert, routing.gate, routing.accepted)
    )
    y = torch.zeros(flat.shape, dtype=gate.dtype, device=x.device)
    for name, layer in experts.items():
        tokens, choices = torch.nonzero((expert == int(name)) & accepted, as_tuple=True)
        weighed = layer(flat[tokens]).to(gate.dtype) * gate[tokens, choices][:, None]
        y = y.index_add(0, tokens, weighed)
    out = y.to(x.dtype).view_as(x)
    return out if shared is None else out + shared(x)
