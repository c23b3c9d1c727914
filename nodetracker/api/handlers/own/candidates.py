"""``/v1/candidates``."""

import uuid
from collections.abc import Iterable

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.accounting.ledger.exclusions import NearMiss
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.accounting.reports.claims import NEAREST, render_candidate, render_excluded
from nodetracker.accounting.schemas import TEXT, list_of
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import PAGE, answer, answer_with, nullable, parameters
from nodetracker.api.handlers.own.claims import read_claim_request
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.errors import RequestError
from nodetracker.model.text import render_value

_EXPLAIN = (bool, "true, or false (excluded is null)")

_ALL = (bool, "true to weigh all nodes, or false (a sample of them)")

FIND_QUERY = parameters(limit=PAGE["limit"], explain=_EXPLAIN, all=_ALL)

LIST_QUERY = parameters(
    "resources",
    resources=(str, "resource classes and amounts such as VCPU:2,MEMORY_MB:4096"),
    required=list_of(TEXT, "traits, separated by commas; may be repeated"),
    **FIND_QUERY["properties"],
)

_NEAREST = answer_with(
    NearMiss,
    NEAREST,
    missing=({str: float}, "resource class -> the amount by which too little is free"),
)

_EXCLUDED = answer(
    total_nodes=(int, "nodes that the request may name"),
    checks=[answer(check=AdmissionCheck, nodes=int, is_lower_bound=bool, text=str)],
    nearest=nullable(_NEAREST, "the excluded node that lacks least"),
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
        )
    ],
    excluded=nullable(_EXCLUDED, "null if limit cuts the list, or with explain=false"),
)

_MAX_DIGITS = 20


def list_candidates(call: Call) -> Answer:
    """List the nodes that fit an instance with these resources, best first."""
    body = {
        "workload": {"uuid": str(uuid.uuid4())},
        "resources": parse_resources(call.query["resources"]),
        "required_traits": parse_traits(call.query.get("required", ())),
    }
    return _select(call, parse_claim_request(body))


def find_candidates(call: Call) -> Answer:
    """List the nodes that fit a claim request, best first."""
    return _select(call, read_claim_request(call, "nodetracker:candidates:list"))


def parse_resources(text: str) -> dict[str, int]:
    """Parse resource classes and amounts as placement's API has them.

    >>> parse_resources("VCPU:2,MEMORY_MB:4096")
    {'VCPU': 2, 'MEMORY_MB': 4096}

    Raises:
        RequestError: the text has another format, or a class twice.
    """
    found: dict[str, int] = {}
    for item in text.split(","):
        name, _, amount = item.partition(":")
        is_number = amount.isascii() and amount.isdigit() and len(amount) <= _MAX_DIGITS
        if not name or not is_number:
            raise RequestError(
                "resources",
                f"invalid value {render_value(item)}: expected CLASS:AMOUNT such as VCPU:2",
            )
        if name in found:
            raise RequestError("resources", f"duplicate resource class {render_value(name)}")
        found[name] = int(amount)
    return found


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
    """Return the candidates; the others are explained if there are no further candidates.

    An explanation costs up to eight statements; up to 28 for NUMA cells, PCI devices and
    further resource classes.
    """
    scheduler, limit = call.backend.scheduler, call.limit
    found = scheduler.select(request, limit, of_all=call.query.get("all", False))
    is_explained = call.query.get("explain", True) and len(found) < limit
    excluded = scheduler.explain(request) if is_explained else None
    return Answer(
        {
            "candidates": [render_candidate(candidate) for candidate in found],
            "excluded": None if excluded is None else render_excluded(excluded),
        }
    )
