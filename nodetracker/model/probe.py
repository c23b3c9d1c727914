"""What became of probes: counted by name, over all nodes."""

import enum
from dataclasses import dataclass, field


class ProbeOutcome(enum.StrEnum):
    """How one call of a probe ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    SKIPPED = "skipped"


@dataclass(slots=True)
class ProbeStatistics:
    """What became of the calls of one probe, over all nodes, since the start.

    Attributes:
        seconds: how long all calls together took.
    """

    calls: dict[ProbeOutcome, int] = field(default_factory=lambda: dict.fromkeys(ProbeOutcome, 0))
    seconds: float = 0.0
