"""Which program trains: what differs between this package's engine and those whose runs were published."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingProgram:
    """How a program computes and sends, beyond what the settings of a run say.

    Attributes
    ----------
    fused_attention
        Scores stay on the chip.
    attention
        Which fused kernel: ``FA1`` or ``FA2``.
    dropout
        After attention, on its scores and after the MLP.
    fused
        Bias, activation, dropout and residual are one kernel.
    overlaps_tensor
        ``backward``: tensor-parallel sums of the backward pass move while weights' gradients are computed; ``all``: the
        other ones and gatherings move beside the products that they belong to, which are then made in pieces.
    gathers_ahead
        Updated weights of ZeRO-1 are gathered while the next forward pass has begun.
    sends_once
        Between stages each tensor-parallel rank sends its part and the receivers gather within the node (scatter-gather
        of arXiv 2104.04473, section 4.1).
    waits_for_messages
        A stage does nothing else while its message to the next one moves (Megatron-LM before 2023).
    wide_gradients
        Weight gradients are added in fp32 by the product itself, and sent so.
    """

    name: str
    fused_attention: bool = True
    attention: str = "FA2"
    dropout: bool = False
    fused: bool = False
    overlaps_tensor: str = "none"
    gathers_ahead: bool = False
    sends_once: bool = False
    waits_for_messages: bool = False
    wide_gradients: bool = False


ENGINE = TrainingProgram("hpcbench")
MEGATRON_2021 = TrainingProgram(
    "Megatron-LM, 2021", fused_attention=False, dropout=True, fused=True, sends_once=True, waits_for_messages=True
)
MEGATRON_2022 = TrainingProgram(
    "Megatron-LM, 2022",
    fused_attention=False,
    dropout=True,
    fused=True,
    overlaps_tensor="backward",
    sends_once=True,
    waits_for_messages=True,
    wide_gradients=True,
)
MEGATRON_DEEPSPEED = TrainingProgram(
    "Megatron-DeepSpeed", fused_attention=False, dropout=True, fused=True, waits_for_messages=True
)
MEGATRON_CORE = TrainingProgram(
    "Megatron-Core, 2024",
    fused=True,
    overlaps_tensor="all",
    gathers_ahead=True,
    sends_once=True,
    wide_gradients=True,
)
FSDP = TrainingProgram("PyTorch FSDP with FlashAttention", attention="FA1", fused=True)
