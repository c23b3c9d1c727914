"""Count the nodes that each check excludes."""

import sqlalchemy as sa

from nodetracker.accounting.ledger.exclusions import Exclusions, count_exclusions, evaluate_miss
from nodetracker.accounting.ledger.grants import evaluate_claim
from nodetracker.accounting.ledger.locked import assume_locked
from nodetracker.db import fleet
from nodetracker.model.claim import ClaimRequest
from nodetracker.ports import AdmissionPolicy


def explain(
    connection: sa.Connection, request: ClaimRequest, policy: AdmissionPolicy
) -> Exclusions:
    """See `Store.count_exclusions`."""
    versions = fleet.load_ledger_versions(connection)
    ids = [
        version.id
        for version in versions.nodes
        if request.host in (None, version.host) and request.nodename in (None, version.nodename)
    ]
    misses = []
    for node in fleet.load_ledger_nodes(connection, ids):
        host, nodename = node.version.host, node.version.nodename
        service = versions.services.get(host)
        locked = assume_locked(node, service, request.workload.uuid, versions.now)
        misses.append(evaluate_miss(host, nodename, evaluate_claim(request, locked, policy)))
    return count_exclusions(misses)
