"""Numbers of tokens per expert during timed steps, summed over all ranks."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.contract.events import ExpertLayer
from hpcbench.parallel.exact import exact_sum
from hpcbench.parallel.experts.routing import Losses, Routing
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.on_demand import in_backward
from hpcbench.train.experts import ExpertMLP


class ExpertCounts:
    """Token counter of mixture-of-experts layers.

    Parameters
    ----------
    layers
        Mixture-of-experts layers of the rank, keyed by layer number.
    mesh
        Mesh of the ranks.

    Attributes
    ----------
    active : bool
        Whether forward passes are counted: True in training, False in evaluations. Recomputation is never counted.
    paused : bool
        Whether nothing is counted, even in training.
    """

    def __init__(self, layers: Mapping[int, ExpertMLP], mesh: Mesh) -> None:
        self._layers, self._mesh = layers, mesh
        self.active = self.paused = False
        self._sums: dict[int, Tensor] = {}
        self._kept: Tensor | float = 0.0
        for number, layer in layers.items():
            layer.watch = partial(self._watch, number, layer.settings.count)

    def forget(self) -> None:
        """Reset all counts."""
        self._sums = {}

    def set_factor(self, factor: float) -> None:
        """Set the factor of the auxiliary losses, which equals the factor of a micro-batch's main loss."""
        for layer in self._layers.values():
            layer.penalty.factor = factor

    def take_kept(self) -> float:
        """Return the number of choices that the experts of this rank have accepted since the last call."""
        accepted, self._kept = float(self._kept), 0.0
        return 0.0 if self._mesh.tp.rank else accepted  # tensor-parallel ranks route the same tokens

    def _watch(self, number: int, count: int, routing: Routing, losses: Losses) -> None:
        if not self.active or self.paused or in_backward():
            return
        chosen = routing.expert.reshape(-1)
        accepted = chosen[routing.accepted.reshape(-1)]
        once = torch.ones(1, dtype=torch.float64, device=chosen.device)
        of_losses = torch.stack((losses.balance, losses.z)).detach().double()
        self._kept = self._kept + routing.accepted.sum()
        counts = (each.bincount(minlength=count).double() for each in (chosen, accepted))
        sums_here = torch.cat((*counts, of_losses, once))
        self._sums[number] = self._sums[number] + sums_here if number in self._sums else sums_here

    def report(self, numbers: list[int], count: int, exact: Channel) -> tuple[ExpertLayer, ...]:
        """Return the number of tokens per expert for each layer (a collective call). All ranks return the same result.

        Parameters
        ----------
        numbers
            Layer numbers of all mixture-of-experts layers of the model.
        count
            Number of experts per layer.
        exact
            Channel without compression.
        """
        nothing = torch.zeros(2 * count + 3, dtype=torch.float64)
        # tensor-parallel ranks route the same tokens
        sums_here = [self._sums.get(number, nothing) if self._mesh.tp.rank == 0 else nothing for number in numbers]
        sums = exact_sum(self._mesh.world, torch.stack([sums.cpu() for sums in sums_here]).flatten().tolist(), exact)
        layers = []
        for i, number in enumerate(numbers):
            row = sums[i * len(nothing) : (i + 1) * len(nothing)]
            chosen, accepted, (balance, z, passes) = row[:count], row[count:-3], row[-3:]
            layers.append(
                ExpertLayer(
                    layer=number,
                    tokens=tuple(map(round, chosen)),
                    dropped=round(sum(chosen) - sum(accepted)),
                    balance_loss=balance / passes if passes else None,
                    z_loss=z / passes if passes else None,
                )
            )
        return tuple(layers)
