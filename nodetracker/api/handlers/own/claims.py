"""``/v1/claims``."""

from typing import Any

from nodetracker.accounting.ledger.claims import require_active, require_amounts, require_no_move
from nodetracker.accounting.reports.claims import (
    render_admission,
    render_claim_details,
    render_no_candidate,
)
from nodetracker.api.call import Answer, Call
from nodetracker.api.claim_requests import find_place, read_claim_request
from nodetracker.api.handlers.own.lookup import find_node
from nodetracker.api.paging import next_links, page_of
from nodetracker.api.query import parse_path_uuid, parse_query_uuid
from nodetracker.model.claim import Claim, ClaimRequest, ClaimState
from nodetracker.model.errors import ClaimRefusedError, NotFoundError, RequestError
from nodetracker.model.listing import ClaimQuery

_RULE = "nodetracker:claims"


def list_claims(call: Call) -> Answer:
    """List claims, by default oldest first."""
    call.require_hosts()
    rule = f"{_RULE}:list"
    _check_marker(call, call.find_visible_project(rule))
    return _list(
        call,
        host=call.query.get("host"),
        nodename=call.query.get("nodename"),
        workload_uuid=parse_query_uuid("workload", call.query.get("workload")),
        project_id=call.select_project(rule, call.query.get("project")),
    )


def _check_marker(call: Call, project: str | None) -> None:
    """Check that the marker is a claim of the only project that the caller sees, if any.

    Raises:
        RequestError: it is not, as of one that does not exist.
    """
    marker = call.query.get("marker")
    if project is None or marker is None:
        return
    if not call.store.list_claim_page(ClaimQuery(uuid=marker, project_id=project)).items:
        raise RequestError("marker", f"not found: {marker}")


def list_claims_of_node(call: Call) -> Answer:
    """List the claims on a node, by default oldest first."""
    return _list(call, node_id=find_node(call).node.id)


def _list(call: Call, **filters: Any) -> Answer:
    wanted = page_of(call)
    states = tuple(map(ClaimState, call.query.get("state", ())))
    query = ClaimQuery(
        after=wanted.marker,
        limit=wanted.limit,
        states=states,
        is_descending=call.query.get("sort_dir") == "desc",
        **filters,
    )
    page = call.store.list_claim_page(query)
    last = page.items[-1].uuid if page.next is not None else None
    return Answer(
        {
            "claims": [_render(call, claim) for claim in page.items],
            "links": next_links(call, last),
        }
    )


def show_claim(call: Call) -> Answer:
    """Show a claim."""
    return Answer(_render(call, _find(call, f"{_RULE}:show")))


def create_claim(call: Call) -> Answer:
    """Claim a workload's resources on a node, or only evaluate the claim."""
    request = read_claim_request(call, f"{_RULE}:create")
    require_no_move(request)
    require_amounts(request)
    if call.query.get("dry_run"):
        return Answer(call.hide_hosts(_evaluate(call, request)))
    claim = require_active(_grant(call, request))
    return Answer(_render(call, claim), 200 if claim.is_repeated else 201)


def abort_claim(call: Call) -> Answer:
    """Abort a claim; one that is released already is not changed."""
    claim = call.store.abort_claim(_parse_uuid(call, f"{_RULE}:abort"))
    return Answer(_render(call, claim))


def confirm_claim(call: Call) -> Answer:
    """Confirm a claim: its guest exists, and it no longer expires."""
    claim = call.store.confirm_claim(_parse_uuid(call, f"{_RULE}:confirm"))
    return Answer(_render(call, claim))


def renew_claim(call: Call) -> Answer:
    """Renew a held claim: it expires [compute] claim_timeout seconds from now."""
    uuid = _parse_uuid(call, f"{_RULE}:renew")
    return Answer(_render(call, call.store.renew_claim(uuid, call.backend.policy)))


def _render(call: Call, claim: Claim) -> dict[str, Any]:
    return call.hide_hosts(render_claim_details(claim))


def _grant(call: Call, request: ClaimRequest) -> Claim:
    """Claim on the node that the request names, or on the best candidate."""
    place = find_place(call, request)
    with call.backend.counters.claims.count():
        if place is None:
            return call.backend.scheduler.create_claim(request)
        return call.store.create_claim(request, *place, call.backend.policy)


def _evaluate(call: Call, request: ClaimRequest) -> dict[str, Any]:
    """Return the result of a dry run on the node that the request names, or the best candidate."""
    place = find_place(call, request)
    if place is not None:
        found = call.store.try_claim(request, *place, call.backend.policy)
        return render_admission(*place, found)
    try:
        candidate, found = call.backend.scheduler.try_claim(request)
    except ClaimRefusedError as error:
        return render_no_candidate(error.reasons)
    return render_admission(candidate.host, candidate.nodename, found)


def _parse_uuid(call: Call, rule: str) -> str:
    """Return the uuid of a claim that the caller may change.

    The claim is read only for callers who may change none but their project's.
    """
    if call.is_allowed(rule, {}):
        return parse_path_uuid(call.params["uuid"], "claim")
    return _find(call, rule).uuid


def _find(call: Call, rule: str) -> Claim:
    """Return the claim of the path.

    Raises:
        NotFoundError: it does not exist, or the rule does not allow the caller to see it.
    """
    uuid = parse_path_uuid(call.params["uuid"], "claim")
    missing = f"no such claim: {uuid}"
    for claim in call.store.list_claim_page(ClaimQuery(uuid=uuid)).items:
        call.require_project(rule, claim.workload.project_id, missing)
        return claim
    raise NotFoundError(missing)
