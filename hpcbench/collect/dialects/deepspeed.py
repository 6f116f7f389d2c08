"""Log lines of DeepSpeed: progress, throughput timer, pipeline engine, and loss-scaler overflows.

Frameworks based on DeepSpeed print these lines between their own lines.
"""

from hpcbench.collect.dialects.dialect import Dialect, Field, Line
from hpcbench.collect.dialects.transformers import END, EVALUATIONS, LOSSES
from hpcbench.collect.dialects.units import GIB, NUMBER, PLAIN, SECONDS, WHOLE

_ASSIGNED = r"(?:^|[ ,]){name}={value}(?=GB|,|\s|$)"
_SPACED = r"(?:^| ){name}: {value}(?=\s|$)"
_MEMORY = Field("MaxMemAllocated", "memory_bytes", GIB)  # DeepSpeed divides by 2**30, but prints GB

DEEPSPEED = Dialect(
    "DeepSpeed",
    markers=("step", "SamplesPerSec", "OVERFLOW", "loss", "train_runtime"),
    engine=True,
    lines=(
        Line(
            r"step=(?P<step>[0-9]{1,18}), (?=skipped=)",
            tail=r", mom=\[",
            joined=r"skipped=[0-9]{1,18}, lr=\[[^\]]{1,2000}\], mom=\[",
            form=r"(?:^|[ ,]){name}=\[?{value}(?=[,\]])",
            fields=(Field("skipped", "skipped", WHOLE), Field("lr", "lr", PLAIN)),
        ),
        Line(
            r"epoch=[0-9]{1,18}/micro_step=[0-9]{1,18}/global_step=(?P<step>[0-9]{1,18}), (?=Running)",
            tail=r"MaxMemAllocated=[0-9.]{1,30}GB",
            joined=rf"RunningAvgSamplesPerSec={NUMBER}, CurrSamplesPerSec={NUMBER}, "
            r"MemAllocated=[0-9.]{1,30}GB, MaxMemAllocated=[0-9.]{1,30}GB",
            form=_ASSIGNED,
            fields=(Field("CurrSamplesPerSec", "samples_per_s", PLAIN), _MEMORY),
        ),
        # Printed until 2023. The number counts micro-batches, so the step number is taken from the preceding line.
        Line(
            r"(?<![\w./])[0-9]{1,18}/[0-9]{1,18}, (?=SamplesPerSec=)",
            tail=r"MaxMemAllocated=[0-9.]{1,30}GB",
            joined=rf"SamplesPerSec={NUMBER}, MemAllocated=[0-9.]{{1,30}}GB, MaxMemAllocated=[0-9.]{{1,30}}GB",
            end=rf"SamplesPerSec={NUMBER}",
            form=_ASSIGNED,
            fields=(Field("SamplesPerSec", "samples_per_s", PLAIN, running_mean=True), _MEMORY),
            note="samples/s are DeepSpeed's mean over all steps from the second, not the speed of a single step",
        ),
        Line(
            r"steps: (?P<step>[0-9]{1,18}) (?=loss:)",
            tail=r" samples/sec: [0-9]{1,18}\.[0-9]{3}(?![0-9])",
            joined=rf"(?:[^:\s]{{1,60}}: {NUMBER} )+iter time \(s\): {NUMBER}"
            r" samples/sec: [0-9]{1,18}\.[0-9]{3}(?![0-9])",
            form=_SPACED,
            fields=(
                Field("loss", "loss", PLAIN),
                Field("iter time (s)", "seconds", SECONDS),
                Field("samples/sec", "samples_per_s", PLAIN),
            ),
        ),
        LOSSES,
        EVALUATIONS,
        END,
        Line(r"\[deep(?:speed|scale)\] OVERFLOW!(?: Rank (?P<rank>[0-9]{1,7}))? Skipping step", kind="overflow"),
        Line(r"\[deepspeed\] fp16 dynamic loss scale overflow! Skipping step", kind="overflow"),
    ),
)
