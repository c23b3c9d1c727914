"""Render the metrics of claim requests."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.metrics.claim_counter import OTHER, ClaimCounts
from nodetracker.metrics.families import counters


def render_claims(counts: ClaimCounts, prefix: str = "") -> Iterator[Metric]:
    """Yield the families.

    Args:
        prefix: of their names.
    """
    yield counters(
        f"{prefix}claim_requests",
        "Claim requests by outcome.",
        ("outcome",),
        [(("granted",), counts.granted), (("refused",), counts.refused)],
    )
    yield counters(
        f"{prefix}claim_refusals",
        "Refused claim requests by failed check; one that fails several is counted by each.",
        ("check",),
        [((name,), counts.checks.get(name, 0)) for name in (*map(str, AdmissionCheck), OTHER)],
    )
