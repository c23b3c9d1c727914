"""``/v1/candidates``."""

import base64
import itertools
import json
from collections.abc import Iterable

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.accounting.ledger.candidates import WEIGHED
from nodetracker.accounting.ledger.exclusions import NearMiss
from nodetracker.accounting.ledger.node_limits import MAX_EXACT
from nodetracker.accounting.ledger.request import (
    build_candidate_request,
    parse_pci,
    parse_resources,
)
from nodetracker.accounting.schemas import TEXT, integer, list_of
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import (
    EXPLANATIONS,
    LINKS,
    NODENAME,
    PAGE,
    SHORT_TEXT,
    answer,
    answer_of,
    answer_with,
    nullable,
    parameters,
)
from nodetracker.api.handlers.own.claims import ADMISSION, read_claim_request
from nodetracker.api.lookup import next_links
from nodetracker.model.candidate import CandidatePosition, ResourceLeft
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.errors import RequestError
from nodetracker.model.numa import MAX_GUEST_CELLS
from nodetracker.model.serializer import decode, encode
from nodetracker.model.text import parse_uuid, render_value
from nodetracker.usecases.candidates import evaluate_named
from nodetracker.views.claims import (
    NEAREST,
    describe_count,
    render_admission,
    render_candidate,
    render_excluded,
)

_EXPLAIN = (bool, "true, or false (excluded is null)")

_ALL = (bool, "true to weigh all nodes, or false (a sample of them)")

_MARKER = {
    "description": "the marker of a link to the next page",
    "type": "string",
    "maxLength": 4000,
    "pattern": "^[A-Za-z0-9_=-]+$",
}

_WHY = SHORT_TEXT | {"description": "a host or a nodename, of whose nodes a dry run is shown"}

_COUNT = (bool, "true to count how many more of these fit, or false")

FIND_QUERY = parameters(
    limit=PAGE["limit"], marker=_MARKER, explain=_EXPLAIN, all=_ALL, why=_WHY, count=_COUNT
)

LIST_QUERY = parameters(
    "resources",
    resources=(str, "resource classes and amounts such as VCPU:2,MEMORY_MB:4096,DISK_GB:1TiB"),
    required=list_of(TEXT, "traits, separated by commas; may be repeated"),
    pci=list_of(TEXT, "PCI aliases, with numbers of devices such as nic:2, separated by commas"),
    pcpu=integer(),
    numa_cells=integer(1, MAX_GUEST_CELLS),
    page_size=(str, "small, large, any, or a size such as 2MB"),
    project=TEXT,
    host=str,
    nodename=NODENAME,
    **FIND_QUERY["properties"],
)

_NEAREST = answer_with(
    NearMiss,
    NEAREST,
    missing=({str: float}, "resource class -> the amount by which too little is free"),
    explanations=EXPLANATIONS,
)

_EXCLUDED = answer(
    total_nodes=(int, "nodes that the request may name"),
    checks=[answer(check=AdmissionCheck, nodes=int, is_lower_bound=bool, text=str)],
    nearest=nullable(_NEAREST, "the excluded node that lacks least"),
    further=([_NEAREST], "those that lack little more"),
)

CANDIDATES = answer(
    candidates=[
        answer(
            host=str,
            nodename=str,
            weight=float,
            free_vcpus=float,
            free_memory_mb=int,
            free_disk_gb=float,
            left=(
                [answer_of(ResourceLeft, text=str)],
                "what else was requested: classes, PCI aliases, and each NUMA cell",
            ),
            count=(int | None, "how many of these fit there; null without count=true"),
        )
    ],
    total=(int | None, "how many of these fit on all nodes; null without count=true"),
    total_text=str | None,
    at_least=(bool, "there may be more, on a node as in total: not all of them were tried"),
    excluded=nullable(_EXCLUDED, "null if limit cuts the list, or with explain=false"),
    why=([ADMISSION], "a dry run on each node that the parameter why names, if any"),
    links=LINKS,
)


def list_candidates(call: Call) -> Answer:
    """List the nodes that fit an instance with these resources, best first."""
    query = call.query
    resources = parse_resources(query["resources"].split(","), ":")
    pci = parse_pci(itertools.chain(*(text.split(",") for text in query.get("pci", ()))), ":")
    required = parse_traits(query.get("required", ()))
    return _select(call, build_candidate_request(resources, pci, {**query, "required": required}))


def find_candidates(call: Call) -> Answer:
    """List the nodes that fit a claim request, best first."""
    return _select(call, read_claim_request(call, "nodetracker:candidates:list"))


def parse_traits(texts: Iterable[str]) -> list[str]:
    """Parse lists of traits.

    >>> parse_traits(["HW_CPU_X86_AVX,CUSTOM_A", "CUSTOM_B"])
    ['HW_CPU_X86_AVX', 'CUSTOM_A', 'CUSTOM_B']

    Raises:
        RequestError: a name is empty.
    """
    names = [name for text in texts for name in text.split(",")]
    if not all(names):
        raise RequestError("required", "invalid value '': expected traits separated by commas")
    return names


def _select(call: Call, request: ClaimRequest) -> Answer:
    """Return a page of candidates; the other nodes are explained if there are no further pages.

    An explanation costs up to eight statements; up to 28 for NUMA cells, PCI devices and
    further resource classes.
    """
    scheduler, limit = call.backend.scheduler, call.limit
    after = None if call.marker is None else _parse_marker(call.marker)
    found, position = scheduler.select_page(request, limit, call.query.get("all", False), after)
    is_explained = call.query.get("explain", True) and position is None and len(found) < limit
    excluded = scheduler.explain(request) if is_explained else None
    count = scheduler.count(request, found) if call.query.get("count", False) else None
    name = call.query.get("why")
    named = [] if name is None else evaluate_named(call.store, scheduler, request, name)
    return Answer(
        {
            "candidates": [render_candidate(node, count) for node in found],
            "total": count and count.total,
            "total_text": count and describe_count(count),
            "at_least": count is not None and count.is_at_least,
            "excluded": None if excluded is None else render_excluded(excluded),
            "why": [render_admission(*found) for found in named],
            "links": next_links(call, None if position is None else _render_marker(position)),
        }
    )


def _render_marker(position: CandidatePosition) -> str:
    text = json.dumps(encode(position), separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode()


def _parse_marker(marker: str) -> CandidatePosition:
    """Return the position that a link to a page has.

    Raises:
        RequestError: it is of no such link.
    """
    try:
        position = decode(CandidatePosition, json.loads(base64.urlsafe_b64decode(marker)))
        _require_possible(position)
    except (ValueError, RecursionError):
        text = f"invalid value {render_value(marker)}: expected that of a link"
        raise RequestError("marker", text) from None
    return position


def _require_possible(position: CandidatePosition) -> None:
    """Check a position, of which anybody may write one.

    Raises:
        ValueError: no list ends there, and databases or floats may not have its numbers.
    """
    parse_uuid(position.request_uuid)
    numbers = [position.taken]
    if position.after is not None:
        scale = position.after.scale
        numbers += [position.after.hash, position.after.node_id]
        numbers += [getattr(end, name) for end in (scale.least, scale.most) for name in WEIGHED]
    if any(abs(number) > MAX_EXACT for number in numbers):
        raise ValueError("a number is too large")
