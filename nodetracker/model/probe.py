"""Statistics of probes by name, over all nodes."""

import enum
from dataclasses import dataclass, field


class ProbeOutcome(enum.StrEnum):
    """The outcome of one call of a probe."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    SKIPPED = "skipped"


@dataclass(slots=True)
class ProbeStatistics:
    """Statistics of one probe's calls since the start, over all nodes.

    Attributes:
        calls: outcome -> number of calls.
        seconds: total duration of the calls.
    """

    calls: dict[ProbeOutcome, int] = field(default_factory=lambda: dict.fromkeys(ProbeOutcome, 0))
    seconds: float = 0.0
