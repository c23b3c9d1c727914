"""Decide which candidates a request may ask, which without further evaluation, in which order."""

from collections.abc import Sequence

from nodetracker.accounting.ledger.migrations import list_dest_refusals
from nodetracker.accounting.weights import node_hash
from nodetracker.model.candidate import CandidateNode
from nodetracker.model.claim import Claim, ClaimRequest


def is_plain(request: ClaimRequest, node: CandidateNode) -> bool:
    """Return whether the store's question has compared all that the ledger compares.

    It leaves NUMA cells, PCI devices and further resource classes to the
    ledger, and all amounts where the workload has a guest; and of a request
    without memory, whether a driver's overhead needs any.
    """
    return (
        not node.has_guest
        and request.numa is None
        and not request.pci_requests
        and not request.amounts.resources
        and request.amounts.memory_mb > 0
    )


def may_be_destination(request: ClaimRequest, source: Claim | None, node_id: int) -> bool:
    """Return whether a node may be the destination of a move, whatever is free there.

    Args:
        source: of the move, None if it is unknown or the request is for no move.
    """
    if request.migration is None or source is None:
        return True
    return not list_dest_refusals(request.migration, source, node_id)


def order_subset(
    candidates: Sequence[CandidateNode], request: ClaimRequest, size: int
) -> list[CandidateNode]:
    """Return the candidates with the best `size` of them in an order that depends on the request.

    The same request always has the same order; requests with other uuids have
    others, so that they ask different nodes first.
    """
    hash_of = node_hash(request.uuid).of
    subset = sorted(candidates[:size], key=lambda candidate: hash_of(candidate.id))
    return [*subset, *candidates[size:]]
