"""Training programs: the differences between hpcbench's engine and programs with published runs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingProgram:
    """Properties of a training program that the settings of a run do not contain.

    Attributes
    ----------
    fused_attention
        Whether attention scores stay on the chip.
    attention
        Fused kernel: ``FA1`` or ``FA2``.
    dropout
        Whether dropout follows attention, its scores and the MLP.
    fused
        Whether bias, activation, dropout and residual are one kernel.
    overlaps_tensor
        Tensor-parallel communication that is overlapped. ``backward``: sums of the backward pass, while gradients of
        weights are computed. ``all``: also other sums and gathers, with their own products, which are made in pieces.
    gathers_ahead
        Whether updated weights of ZeRO-1 are gathered during the next forward pass.
    sends_once
        Whether each tensor-parallel rank sends only its part to the next stage, and receivers gather the parts within
        the node (scatter-gather of arXiv 2104.04473, section 4.1).
    waits_for_messages
        Whether a stage is blocked during a message to the next one (Megatron-LM before 2023).
    wide_gradients
        Whether products add weight gradients in fp32, and messages have this precision.
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
