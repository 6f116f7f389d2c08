"""Carriers of a group's encoded calls, one per device, created on first use."""

import torch
import torch.distributed as dist

from hpcbench.contract.call_treatment import CallKind
from hpcbench.contract.treatment import Treatment
from hpcbench.programs import backends
from hpcbench.programs.account import Account
from hpcbench.programs.call_carrier import CallCarrier
from hpcbench.programs.encoded import EncodedGroup


class GroupCarriers:
    """The carriers of one group.

    Parameters
    ----------
    group
        Group whose calls are encoded.
    account
        Counts of sent messages.
    through_host
        Whether GPU tensors are sent through the host and gloo (`cuda: true` in the groups file).
    """

    def __init__(self, group: dist.ProcessGroup, account: Account, *, through_host: bool) -> None:
        self._group, self._account, self._through_host = group, account, through_host
        self._carriers: dict[str, CallCarrier] = {}
        self._streamed: dict[str, bool] = {}

    def of(self, tensor: torch.Tensor) -> CallCarrier:
        """Return the carrier of encoded calls on a tensor's device. The carrier is created on first use."""
        streamed = self._is_streamed(tensor.device)
        name = str(tensor.device) if streamed else "gloo"
        if name not in self._carriers:
            self._carriers[name] = (
                backends.make_streamed_group(self._group, self._account, tensor.device)
                if streamed
                else EncodedGroup(self._group, self._account)
            )
        return self._carriers[name]

    def find_hindrance(self, device: torch.device, call: CallKind, rule: Treatment | None, *, planned: bool) -> str:
        """Return why calls on a device are not encoded, or an empty string.

        Parameters
        ----------
        rule
            The scheme's treatment of the call, if any.
        planned
            Whether the operation has a plan.
        """
        if self._is_streamed(device):
            return backends.find_refusal(call, rule) if rule else ""
        if device.type == "cpu" or (device.type == "cuda" and self._through_host and planned):
            return ""
        return backends.explain_device(self._group, device)

    def stepped(self) -> None:
        """Begin a new step, after the program's optimizer has made a step."""
        for carrier in self._carriers.values():
            carrier.stepped()

    def stop(self, patience_s: float) -> None:
        """Stop the threads of all carriers."""
        for carrier in self._carriers.values():
            carrier.stop(patience_s)

    def _is_streamed(self, device: torch.device) -> bool:
        if device.type not in self._streamed:
            streamed = backends.is_streamed(self._group, device, through_host=self._through_host)
            self._streamed[device.type] = streamed
        return self._streamed[device.type]
