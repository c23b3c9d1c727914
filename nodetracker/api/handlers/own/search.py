"""``/v1/search``: hosts, nodes, workloads, claims and projects by a part of their name or uuid."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import SHORT_TEXT, answer, choice, parameters
from nodetracker.model.listing import ClaimQuery, WorkloadQuery
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.text import natural_key

QUERY = parameters("text", text=SHORT_TEXT)

FOUND = answer(
    found=[
        answer(
            kind=choice(("host", "node", "project", "workload", "claim")),
            name=str,
            uuid=(str | None, "of the node, of one of the host's, of the workload or the claim's"),
            host=str | None,
            nodename=str | None,
        )
    ]
)

MOST = 8
"""Of each kind."""

_UUID_PART = re.compile(r"[0-9a-f]{4}[0-9a-f-]{0,32}")
_UUID_LENGTH = 36
_LEAST = 2


def search(call: Call) -> Answer:
    """Find hosts, nodes, projects, workloads and claims, some of each kind.

    Hosts and nodes come from the shared overview; the others take up to four statements.
    """
    text = call.query["text"].strip().lower()
    found = [*_find_places(call, text), *_find_owned(call, call.query["text"].strip(), text)]
    return Answer({"found": found})


def _show(kind: str, name: str, **more: str | None) -> dict[str, Any]:
    return {"kind": kind, "name": name, "uuid": None, "host": None, "nodename": None, **more}


def _find_places(call: Call, text: str) -> Iterator[dict[str, Any]]:
    overview = call.backend.fleet.get(call.user_id).overview
    nodes = [line.node for line in overview.nodes]
    agents = (line.host for line in overview.services if line.binary == COMPUTE_BINARY)
    hosts: dict[str, str | None] = dict.fromkeys(agents)
    hosts |= {node.host: node.uuid for node in nodes}
    for host in _take_best(((host, host) for host in hosts), text):
        yield _show("host", host, uuid=hosts[host], host=host)
    named = {(node.nodename, node.uuid): node for node in nodes}
    for key in _take_best(((name, (name, uuid)) for name, uuid in named), text):
        node = named[key]
        yield _show("node", node.nodename, uuid=node.uuid, host=node.host, nodename=node.nodename)
    if _UUID_PART.match(text):
        for node in [node for node in nodes if node.uuid.startswith(text)][:MOST]:
            yield _show("node", node.uuid, uuid=node.uuid, host=node.host, nodename=node.nodename)


def _take_best(named: Iterable[tuple[str, Any]], text: str) -> list[Any]:
    """Return what has the text in its name, names that begin with it first, in natural order."""
    matching = [(name.lower(), item) for name, item in named if text in name.lower()]
    matching.sort(key=lambda pair: (not pair[0].startswith(text), natural_key(pair[0])))
    return [item for _, item in matching[:MOST]]


def _find_owned(call: Call, given: str, text: str) -> Iterator[dict[str, Any]]:
    """Yield projects, workloads and claims, as far as the caller may list them."""
    is_uuid = _UUID_PART.fullmatch(text) is not None
    if call.is_allowed("nodetracker:workloads:list", {}):
        if call.store.list_workloads(WorkloadQuery(project_id=given, limit=1)).items:
            yield _show("project", given)
        named = WorkloadQuery(name_part=given, limit=MOST)
        queries = [named] if len(given) >= _LEAST else []
        if is_uuid:
            is_whole = len(text) == _UUID_LENGTH
            by_uuid = (
                WorkloadQuery(uuid=text) if is_whole else WorkloadQuery(after=text, limit=MOST)
            )
            queries.append(by_uuid)
        for query in queries:
            for row in call.store.list_workloads(query).items:
                if query is named or row.uuid.startswith(text):
                    name = row.name if query is named else row.uuid
                    place = {"host": row.host, "nodename": row.nodename}
                    yield _show("workload", name, uuid=row.uuid, **place)
    if is_uuid and call.is_allowed("nodetracker:claims:list", {}):
        for claim in call.store.list_claim_page(ClaimQuery(uuid_part=text, limit=MOST)).items:
            place = {"host": claim.host, "nodename": claim.nodename}
            yield _show("claim", claim.uuid, uuid=claim.workload.uuid, **place)
