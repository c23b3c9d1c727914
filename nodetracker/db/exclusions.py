"""Count the nodes that each check excludes."""

from collections.abc import Iterator

import sqlalchemy as sa

from nodetracker.accounting.ledger.exclusions import (
    MOST_EVALUATED,
    Exclusions,
    count_exclusions,
    evaluate_miss,
)
from nodetracker.accounting.ledger.grants import evaluate_claim
from nodetracker.accounting.ledger.locked import assume_locked
from nodetracker.db import fleet
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.fleet import LedgerNode
from nodetracker.ports import AdmissionPolicy


def explain(
    connection: sa.Connection, request: ClaimRequest, policy: AdmissionPolicy
) -> Exclusions:
    """See `Store.count_exclusions`."""
    return count_exclusions(
        evaluate_miss(
            node.host,
            node.nodename,
            evaluate_claim(request, assume_locked(node, request.workload.uuid), policy),
        )
        for node in _list_nodes(connection)
        if request.host in (None, node.host) and request.nodename in (None, node.nodename)
    )


def _list_nodes(connection: sa.Connection) -> Iterator[LedgerNode]:
    last = 0
    while page := fleet.list_ledger_nodes(connection, last, MOST_EVALUATED):
        yield from page
        last = page[-1].id
