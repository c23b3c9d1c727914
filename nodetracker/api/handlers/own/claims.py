"""``/v1/claims``."""

from typing import Any

from nodetracker.accounting.ledger.request import build_claim_request, build_claim_requests
from nodetracker.accounting.schemas import UUID, Schema, list_of, one_of
from nodetracker.api.call import Answer, Call
from nodetracker.api.errors import explain, show_problem
from nodetracker.api.fields import (
    EXPLANATIONS,
    HIDEABLE,
    NODENAME,
    PAGE,
    answer,
    answer_of,
    answer_with,
    answered_page,
    choice,
    hideable,
    nullable,
    parameters,
    with_damage,
)
from nodetracker.api.lookup import answer_page, get_node
from nodetracker.api.query import parse_path_uuid, parse_query_uuid
from nodetracker.model.amounts import ResourceVerdict
from nodetracker.model.claim import Claim, ClaimRequest, ClaimState
from nodetracker.model.errors import (
    ClaimRefusedError,
    ForbiddenError,
    NodetrackerError,
    NotFoundError,
    RequestError,
)
from nodetracker.model.listing import ClaimQuery
from nodetracker.model.numa import CellAssignment
from nodetracker.views.claims import (
    CLAIM_DETAILS,
    render_admission,
    render_claim_details,
    render_no_candidate,
)

_STATES = list_of(one_of(ClaimState), "states; may be repeated")
_ORDER: Schema = {"sort_dir": choice(("asc", "desc"))}

LIST_QUERY = parameters(
    host=str, nodename=NODENAME, state=_STATES, workload=UUID, project=str, **_ORDER, **PAGE
)

OF_NODE_QUERY = parameters(state=_STATES, **_ORDER, **PAGE)

CREATE_QUERY = parameters(dry_run=bool)

_CELL = answer_of(
    CellAssignment, pins=({str: int}, "CPU of the guest -> CPU of the host"), isolated=[int]
)

PLACEMENT = answer(cells=[_CELL]) | {"type": ["object", "null"]}

CLAIM = with_damage(
    answer_with(
        Claim,
        CLAIM_DETAILS,
        host=HIDEABLE,
        nodename=HIDEABLE,
        resources={str: int},
        numa=PLACEMENT,
        devices=hideable([str]),
    )
)

CLAIMS = answered_page("claims", CLAIM)

_VERDICT = answer_of(ResourceVerdict, fits=bool)

_PCI_FINDING = answer(
    alias=str, count=int, usable=int, pools=hideable([str]), devices=hideable([str])
)

ADMISSION = answer(
    host=str | None,
    nodename=str | None,
    fits=bool,
    reasons=[str],
    explanations=EXPLANATIONS,
    numa=PLACEMENT,
    numa_reasons=[str],
    resources=[_VERDICT],
    pci=[_PCI_FINDING],
)

ERROR = answer(
    status=int, code=str, title=str, detail=str, reasons=[str], explanations=EXPLANATIONS
)

OUTCOME = answer(
    uuid=str,
    status=(int, "status that a request of its own would have"),
    claim=nullable(CLAIM, "null: none was granted"),
    error=nullable(ERROR, "null: a claim was granted"),
)

CLAIM_OR_ADMISSION: Schema = {
    "description": "the claim that the same request was granted before, a dry run's result, or "
    "the outcome of each of many requests, in a dry run what it would be",
    "oneOf": [CLAIM, ADMISSION, answer(claims=[OUTCOME])],
}


_RULE = "nodetracker:claims"
_LIMITS_RULE = f"{_RULE}:limits"


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
        RequestError: it is another claim, or does not exist; both give the same error.
    """
    if project is None or call.marker is None:
        return
    if not call.store.list_claim_page(ClaimQuery(uuid=call.marker, project_id=project)).items:
        raise RequestError("marker", f"not found: {call.marker}")


def list_claims_of_node(call: Call) -> Answer:
    """List the claims on a node, by default oldest first."""
    return _list(call, node_id=get_node(call).node.id)


def _list(call: Call, **filters: Any) -> Answer:
    query = ClaimQuery(
        after=call.marker,
        limit=call.limit,
        states=tuple(map(ClaimState, call.query.get("state", ()))),
        is_descending=call.query.get("sort_dir") == "desc",
        **filters,
    )
    page = call.store.list_claim_page(query)
    shown = [_render(call, claim) for claim in page.items]
    return answer_page(call, "claims", shown, page.next and page.items[-1].uuid)


def show_claim(call: Call) -> Answer:
    """Show a claim."""
    return Answer(_render(call, _find(call, f"{_RULE}:show")))


def create_claim(call: Call) -> Answer:
    """Claim a workload's resources on a node, or only evaluate the claim; or claim for many."""
    if "claims" in call.body:
        return _create_claims(call)
    request = read_claim_request(call, f"{_RULE}:create")
    if call.query.get("dry_run"):
        return Answer(call.hide_hosts(_evaluate(call, request)))
    with call.backend.counters.claims.count():
        claim = call.backend.scheduler.create_claim(request)
    return Answer(_render(call, claim), 200 if claim.is_repeated else 201)


def read_claim_request(call: Call, rule: str) -> ClaimRequest:
    """Return the claim request in the body.

    Args:
        rule: of the operation.

    Raises:
        RequestError: a value contradicts another.
        ForbiddenError: the caller may not do this for the workload's project,
            or may not set limits of its own.
    """
    request = build_claim_request(call.body)
    check_allowed(call, rule, request)
    return request


def check_allowed(call: Call, rule: str, request: ClaimRequest) -> None:
    """Check that the caller may make a request; see `read_claim_request`."""
    target = {"project_id": request.workload.project_id}
    has_limits = request.limits or request.numa_limits is not None
    for needed in (rule, _LIMITS_RULE) if has_limits else (rule,):
        if not call.is_allowed(needed, target):
            raise ForbiddenError(f"Policy does not allow {needed} to be performed.")


def _create_claims(call: Call) -> Answer:
    """Answer each request as `create_claim` does; one that is invalid or forbidden ends all.

    A dry run has the answers that the requests would get.
    """
    requests = build_claim_requests(call.body)
    for request in requests:
        check_allowed(call, f"{_RULE}:create", request)
    if call.query.get("dry_run"):
        outcomes = call.backend.scheduler.try_claims(requests)
    else:
        outcomes = call.backend.scheduler.create_claims(requests)
        for outcome in outcomes:
            call.backend.counters.claims.note(outcome)
    shown = [
        _render_outcome(call, request, outcome)
        for request, outcome in zip(requests, outcomes, strict=True)
    ]
    return Answer({"claims": shown})


def _render_outcome(
    call: Call, request: ClaimRequest, outcome: Claim | NodetrackerError
) -> dict[str, Any]:
    shown: dict[str, Any] = {"uuid": request.uuid, "claim": None, "error": None}
    if isinstance(outcome, Claim):
        status = 200 if outcome.is_repeated else 201
        return shown | {"status": status, "claim": _render(call, outcome)}
    error = render_error(outcome)
    return shown | {"status": error["status"], "error": error}


def render_error(error: NodetrackerError) -> dict[str, Any]:
    """Return the error of one of many requests."""
    return {"reasons": [], "explanations": [], **show_problem(explain(error))}


def _evaluate(call: Call, request: ClaimRequest) -> dict[str, Any]:
    try:
        return render_admission(*call.backend.scheduler.try_claim(request))
    except ClaimRefusedError as error:
        return render_no_candidate(error)


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


def _parse_uuid(call: Call, rule: str) -> str:
    """Return the uuid of a claim that the caller may change.

    The claim is read only for callers who may change none but their project's.
    """
    if call.is_allowed(rule, {}):
        return parse_path_uuid(call.params["uuid"], "claim")
    return _find(call, rule).uuid


def _find(call: Call, rule: str) -> Claim:
    """Return the claim of the path.

    That of another project is not read, so that it takes as long as one that does not exist.

    Raises:
        NotFoundError: it does not exist, or the rule does not allow the caller to see it.
    """
    uuid = parse_path_uuid(call.params["uuid"], "claim")
    query = ClaimQuery(uuid=uuid, project_id=call.find_visible_project(rule))
    for claim in call.store.list_claim_page(query).items:
        return claim
    raise NotFoundError(f"no such claim: {uuid}")
