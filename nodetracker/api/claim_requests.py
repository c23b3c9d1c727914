"""Read claim requests from bodies, and find the node that they name."""

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.api.call import Call
from nodetracker.fleet.reads import find_node
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.errors import ForbiddenError
from nodetracker.model.numa import NumaLimits

_LIMITS_RULE = "nodetracker:claims:limits"


def read_claim_request(call: Call, rule: str) -> ClaimRequest:
    """Return the claim request in the body.

    Args:
        rule: of the operation.

    Raises:
        RequestError: a key is unknown or missing, or its value is invalid.
        ForbiddenError: the caller may not do this for the workload's project,
            or may not set limits of its own.
    """
    request = parse_claim_request(call.body)
    target = {"project_id": request.workload.project_id}
    has_limits = request.limits or request.numa_limits != NumaLimits()
    for needed in (rule, _LIMITS_RULE) if has_limits else (rule,):
        if not call.is_allowed(needed, target):
            raise ForbiddenError(f"Policy does not allow {needed} to be performed.")
    return request


def find_place(call: Call, request: ClaimRequest) -> tuple[str, str] | None:
    """Return host and nodename of the node that a request names, None if it names no host.

    A node that is named in full is left to the ledger to find.

    Raises:
        NotFoundError: the host has no nodes.
        RefusedError: the host has several nodes and the request names none.
    """
    if request.host is None:
        return None
    if request.nodename is not None:
        return request.host, request.nodename
    node = find_node(call.store, request.host)
    return node.host, node.nodename
