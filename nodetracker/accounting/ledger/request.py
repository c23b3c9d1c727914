"""Parse claim requests: a schema checks their form, code checks what a schema cannot express."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

from nodetracker.accounting.schemas import (
    CLAIM_REQUEST,
    CLAIM_REQUESTS,
    MAX_PAGE_KB,
    MIGRATION_REQUESTS,
)
from nodetracker.accounting.validator import check
from nodetracker.model.amounts import DISK, MEMORY, PCPU, VCPU, Amounts
from nodetracker.model.claim import ClaimRequest, MigrationType, MoveRequest, Workload
from nodetracker.model.errors import RequestError
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.numa import (
    CpuPolicy,
    CpuThreadPolicy,
    GuestCell,
    NumaLimits,
    NumaRequest,
    PageSize,
)
from nodetracker.model.pci import PciNumaPolicy, PciRequest
from nodetracker.model.text import parse_uuid, render_value
from nodetracker.model.units import (
    MIB_PER_GIB,
    MILLI,
    parse_page_size_kb,
    parse_size_mib,
    render_amount,
    usage_gib_from_mib,
)

_CELL_KEYS = ("vcpus", "pcpus", "memory_mb")
_PAGE_SIZES = tuple(PageSize)


def parse_numa_request(body: Mapping[str, Any] | None, amounts: Amounts) -> NumaRequest | None:
    """Parse the part ``numa`` of a claim request.

    Every key may be absent or null: ``nodes`` (1), ``cells``, ``cpu_policy``
    (derived from the resources), ``cpu_thread_policy`` (prefer), ``page_size``
    (ordinary memory), ``networks`` (a list of names). ``page_size`` is
    ``small``, ``large``, ``any``, a number of KiB, or a text such as ``2MB``.
    A cell is an object of three integers, each 0 when absent::

        {"vcpus": 2, "pcpus": 1, "memory_mb": 2048}

    Without ``cells`` the resources are split evenly. As with Nova's flavors, a
    split that leaves a remainder is refused: the caller states in ``cells``
    which cell is larger. Unlike in Nova, each of VCPU, PCPU and memory must
    divide evenly, so that all cells are equal.

    As with Nova's flavors, ``dedicated`` with only VCPU pins these: the ledger
    charges the result's `pcpus`.

    Args:
        body: value of the key ``numa``, None when the request has none.
        amounts: of the whole request.

    Returns:
        The request; None without the key ``numa`` and without PCPU.

    Raises:
        RequestError: a value contradicts another or the resources.

    >>> parse_numa_request({"nodes": 2, "page_size": "2MB"}, Amounts(4000)).page_size
    2048
    """
    pcpus = amounts.pcpus
    if body is None and pcpus == 0:
        return None
    entry = body or {}
    if amounts.vcpu_milli % MILLI:
        reason = f"expected whole CPUs with NUMA, got {render_amount(amounts.vcpu_milli / MILLI)}"
        raise RequestError("resources.VCPU", reason)
    vcpus = amounts.vcpu_milli // MILLI
    policy = _parse_cpu_policy(entry.get("cpu_policy"), vcpus, pcpus)
    if policy is CpuPolicy.DEDICATED and pcpus == 0:
        vcpus, pcpus = 0, vcpus
    return NumaRequest(
        cells=_parse_cells(entry, GuestCell(vcpus, pcpus, amounts.memory_mb)),
        cpu_policy=policy,
        cpu_thread_policy=_parse_cpu_thread_policy(entry.get("cpu_thread_policy"), policy),
        page_size=_parse_page_size(entry.get("page_size")),
        networks=tuple(sorted(set(entry.get("networks") or ()))),
    )


def parse_numa_limits(body: Mapping[str, Any] | None) -> NumaLimits:
    """Parse the key ``limits.numa`` of a claim request: a ratio that is None does not limit."""
    ratios = {key: float(ratio) for key, ratio in (body or {}).items() if ratio is not None}
    return NumaLimits(**ratios)


def _parse_cpu_policy(value: str | None, vcpus: int, pcpus: int) -> CpuPolicy:
    """Return the requested policy, or the one that the resources imply; both must agree."""
    if value is None:
        if pcpus == 0:
            return CpuPolicy.SHARED
        return CpuPolicy.MIXED if vcpus else CpuPolicy.DEDICATED
    policy = CpuPolicy(value)
    path = "numa.cpu_policy"
    if policy is CpuPolicy.SHARED and pcpus:
        raise RequestError(path, f"shared contradicts resources.PCPU = {pcpus}")
    if policy is CpuPolicy.DEDICATED and vcpus and pcpus:
        raise RequestError(path, "dedicated needs either VCPU or PCPU, not both")
    if policy is CpuPolicy.MIXED and not (vcpus and pcpus):
        raise RequestError(path, "mixed needs both VCPU and PCPU")
    return policy


def _parse_cpu_thread_policy(value: str | None, policy: CpuPolicy) -> CpuThreadPolicy:
    if value is None:
        return CpuThreadPolicy.PREFER
    if policy is CpuPolicy.SHARED:
        raise RequestError("numa.cpu_thread_policy", f"{value} needs pinned CPUs")
    return CpuThreadPolicy(value)


def _parse_page_size(value: str | int | None) -> PageSize | int | None:
    if value is None or isinstance(value, int):
        return value
    if value in _PAGE_SIZES:
        return PageSize(value)
    path = "numa.page_size"
    try:
        size_kb = parse_page_size_kb(value)
    except ValueError as error:
        raise RequestError(path, str(error)) from None
    if not 0 < size_kb <= MAX_PAGE_KB:
        raise RequestError(path, f"expected KiB from 1 to {MAX_PAGE_KB}, got {render_value(value)}")
    return size_kb


def _parse_cells(entry: Mapping[str, Any], total: GuestCell) -> tuple[GuestCell, ...]:
    nodes, cells = entry.get("nodes"), entry.get("cells")
    if cells is None:
        return _split(total, nodes or 1)
    if nodes not in (None, len(cells)):
        raise RequestError("numa.nodes", f"expected {len(cells)} as in numa.cells, got {nodes}")
    parsed = tuple(GuestCell(**{key: cell.get(key, 0) for key in _CELL_KEYS}) for cell in cells)
    for index, cell in enumerate(parsed):
        if cell.vcpus + cell.pcpus == 0:
            raise RequestError(f"numa.cells[{index}]", "has no CPU")
    _check_sums(parsed, total)
    return parsed


def _split(total: GuestCell, nodes: int) -> tuple[GuestCell, ...]:
    amounts = {"VCPU": total.vcpus, "PCPU": total.pcpus, "MEMORY_MB": total.memory_mb}
    for name, amount in amounts.items():
        if amount % nodes:
            reason = f"{name} {amount} cannot be split evenly into {nodes}; use numa.cells"
            raise RequestError("numa.nodes", reason)
    if total.vcpus + total.pcpus == 0:
        raise RequestError("numa", "needs VCPU or PCPU in resources")
    cell = GuestCell(total.vcpus // nodes, total.pcpus // nodes, total.memory_mb // nodes)
    return (cell,) * nodes


def _check_sums(cells: tuple[GuestCell, ...], total: GuestCell) -> None:
    for key in _CELL_KEYS:
        found, expected = sum(getattr(cell, key) for cell in cells), getattr(total, key)
        if found != expected:
            raise RequestError("numa.cells", f"expected {key} to sum to {expected}, got {found}")


_MAX_DECIMALS = 3


def parse_claim_request(value: object, make_uuid: Callable[[], object] = uuid4) -> ClaimRequest:
    """Build a claim request from a document, as a JSON reader returns it.

    Raises:
        RequestError: a key is unknown or missing, or its value is invalid;
            the message begins with its path.
    """
    check(value, CLAIM_REQUEST)
    return build_claim_request(cast("Mapping[str, Any]", value), make_uuid)


def build_claim_request(
    body: Mapping[str, Any], make_uuid: Callable[[], object] = uuid4
) -> ClaimRequest:
    """Build a claim request from a body that its schema accepts.

    Args:
        make_uuid: for a request without a uuid, and for a migration.

    Raises:
        RequestError: a value contradicts another, as `parse_claim_request`.
    """
    body = _rename_node(body)
    uuid = body.get("uuid")
    limits = dict(body.get("limits") or {})
    numa_limits = parse_numa_limits(limits.pop("numa")) if "numa" in limits else None
    _check_limits(limits, body.get("resources") or {})
    amounts = _parse_amounts(body)
    numa = parse_numa_request(body.get("numa"), amounts)
    if numa is not None:  # a dedicated policy pins CPUs that were requested as shared
        amounts = replace(amounts, vcpu_milli=numa.vcpus * MILLI, pcpus=numa.pcpus)
    return ClaimRequest(
        uuid=str(make_uuid()) if uuid is None else _parse_uuid(uuid, "uuid"),
        workload=_parse_workload(body["workload"]),
        amounts=amounts,
        request_hash=hash_request(body),
        host=body.get("host"),
        nodename=body.get("nodename"),
        limits=limits,
        numa=numa,
        numa_limits=numa_limits,
        pci_requests=tuple(map(_parse_pci_request, body.get("pci_requests") or ())),
        required_traits=tuple(sorted(set(body.get("required_traits") or ()))),
        migration=_parse_migration(body, make_uuid),
        has_new_uuid=uuid is None,
    )


def parse_claim_requests(value: object) -> list[ClaimRequest]:
    """Build the requests of a document with the key ``claims``, as `parse_claim_request`.

    Raises:
        RequestError: as `parse_claim_request`, or two of them have one uuid.
    """
    check(value, CLAIM_REQUESTS)
    return build_claim_requests(cast("Mapping[str, Any]", value))


def parse_migration_requests(value: object) -> list[ClaimRequest]:
    """Build the requests of a document with the key ``migrations``, as `parse_claim_requests`."""
    check(value, MIGRATION_REQUESTS)
    return build_claim_requests(cast("Mapping[str, Any]", value), "migrations")


def build_claim_requests(body: Mapping[str, Any], key: str = "claims") -> list[ClaimRequest]:
    """Build the requests of a document that its schema accepts; see `parse_claim_requests`."""
    requests: list[ClaimRequest] = []
    known = set()
    for number, entry in enumerate(body[key]):
        path = f"{key}[{number}]"
        try:
            request = build_claim_request(entry)
        except RequestError as error:
            raise RequestError(f"{path}.{error.path}", error.reason) from None
        if request.migration is None and key == "migrations":
            raise RequestError(f"{path}.migration", "is missing")
        if request.uuid in known:
            raise RequestError(f"{path}.uuid", f"{request.uuid} is that of an earlier request")
        known.add(request.uuid)
        requests.append(request)
    return requests


def _rename_node(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a body whose nodename has that key, as it may also be ``node``."""
    if body.get("node") is None:
        return body
    if body.get("nodename") is not None:
        raise RequestError("node", "cannot be combined with nodename, which is the same")
    renamed = {key: item for key, item in body.items() if key != "node"}
    return renamed | {"nodename": body["node"]}


def hash_request(body: Mapping[str, Any]) -> str:
    """Return a hash that identifies a body, regardless of its uuid and the order of its keys."""
    rest = {key: item for key, item in body.items() if key != "uuid" and item is not None}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _parse_workload(body: Mapping[str, Any]) -> Workload:
    texts = {key: body[key] for key in ("name", "project_id", "user_id") if body.get(key)}
    kind = WorkloadKind(body.get("kind", WorkloadKind.INSTANCE))
    return Workload(_parse_uuid(body["uuid"], "workload.uuid"), kind, **texts)


def _parse_migration(
    body: Mapping[str, Any], make_uuid: Callable[[], object]
) -> MoveRequest | None:
    migration, kind = body.get("migration"), body["workload"].get("kind")
    if migration is None:
        return None
    source = _parse_uuid(migration["source_claim"], "migration.source_claim")
    return MoveRequest(
        str(make_uuid()), MigrationType(migration["type"]), source, kind and WorkloadKind(kind)
    )


def _parse_amounts(body: Mapping[str, Any]) -> Amounts:
    resources = dict(body.get("resources") or {})
    disk = body.get("disk")
    if disk is None:
        disk = {"root_gb": resources.pop(DISK, 0)}
    elif DISK in resources:
        raise RequestError("disk", f"cannot be combined with resources.{DISK}")
    disk_gb = disk.get("root_gb", 0) + disk.get("ephemeral_gb", 0)
    return Amounts(
        vcpu_milli=_parse_vcpu(resources.pop(VCPU, 0)),
        pcpus=resources.pop(PCPU, 0),
        memory_mb=resources.pop(MEMORY, 0),
        disk_mb=disk_gb * MIB_PER_GIB + disk.get("swap_mb", 0),
        resources={key: amount for key, amount in sorted(resources.items()) if amount},
    )


def _check_limits(limits: Mapping[str, Any], resources: Mapping[str, Any]) -> None:
    """Check that each limit is of a class that the request may claim."""
    known = dict.fromkeys((VCPU, PCPU, MEMORY, DISK, "numa", *resources))
    unknown = next((key for key in limits if key not in known), None)
    if unknown is not None:
        raise RequestError(
            "limits",
            f"unknown key {render_value(unknown)}: expected one of {', '.join(known)}",
        )


def _parse_vcpu(value: float) -> int:
    """Return thousandths; a schema's ``multipleOf: 0.001`` would reject 0.57."""
    if round(value, _MAX_DECIMALS) != value:
        raise RequestError(
            f"resources.{VCPU}",
            f"expected at most {_MAX_DECIMALS} decimals, got {render_value(value)}",
        )
    return round(value * MILLI)


def _parse_pci_request(body: Mapping[str, Any]) -> PciRequest:
    policy = body.get("numa_policy")
    return PciRequest(body["alias"], body.get("count", 1), policy and PciNumaPolicy(policy))


def _parse_uuid(value: object, path: str) -> str:
    try:
        return parse_uuid(value)
    except ValueError as error:
        raise RequestError(path, str(error)) from None


_MAX_DIGITS = 20
_FIELDS = {
    "resources.PCPU": "pcpu",
    "numa.page_size": "page_size",
    "numa": "numa_cells",
    "pci_requests": "pci",
    "required_traits": "required",
    "workload.project_id": "project",
}
"""Beginning of a path in a claim request -> the field of `build_candidate_request`."""


def parse_resources(items: Iterable[str], sign: str) -> dict[str, int]:
    """Parse resource classes and amounts; memory and disk may have a unit.

    Args:
        sign: between a class and its amount.

    Raises:
        RequestError: an item has another format, or a class is given twice.

    >>> parse_resources(["VCPU:2", "MEMORY_MB:4096", "DISK_GB:1.5TiB"], ":")
    {'VCPU': 2, 'MEMORY_MB': 4096, 'DISK_GB': 1536}
    """
    found: dict[str, int] = {}
    for item in items:
        name, _, text = item.partition(sign)
        try:
            amount = _parse_amount(name, text)
        except ValueError:
            reason = f"expected CLASS{sign}AMOUNT such as VCPU{sign}2 or {MEMORY}{sign}32GiB"
            raise RequestError(
                "resources", f"invalid value {render_value(item)}: {reason}"
            ) from None
        if name in found:
            raise RequestError("resources", f"duplicate resource class {render_value(name)}")
        found[name] = amount
    return found


def _parse_amount(resource: str, text: str) -> int:
    if _is_number(text) and resource:
        return int(text)
    size_mib = parse_size_mib(text)
    if resource not in (MEMORY, DISK):
        raise ValueError(f"{resource} has no unit")
    return size_mib if resource == MEMORY else usage_gib_from_mib(size_mib)


def parse_pci(items: Iterable[str], sign: str) -> list[dict[str, Any]]:
    """Parse PCI aliases with the number of devices, 1 where it is left out.

    Raises:
        RequestError: an item has another format.

    >>> parse_pci(["gpu", "nic=2"], "=")
    [{'alias': 'gpu', 'count': 1}, {'alias': 'nic', 'count': 2}]
    """
    found = []
    for item in items:
        alias, has_count, count = item.partition(sign)
        if not alias or (has_count and not _is_number(count)):
            reason = f"expected ALIAS or ALIAS{sign}N"
            raise RequestError("pci", f"invalid value {render_value(item)}: {reason}")
        found.append({"alias": alias, "count": int(count or 1)})
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def build_candidate_request(
    resources: Mapping[str, int], pci: list[dict[str, Any]], fields: Mapping[str, Any]
) -> ClaimRequest:
    """Build the request of a search for nodes, which REST and the command line ask alike.

    Args:
        resources, pci: from `parse_resources` and `parse_pci`.
        fields: ``pcpu``, ``numa_cells``, ``page_size``, ``project``, ``host`` and ``nodename``,
            each None or absent if it is not asked for, and the list of traits ``required``.

    Raises:
        RequestError: a value is invalid; its path is the field's.
    """
    pcpu, cells, page_size = (fields.get(name) for name in ("pcpu", "numa_cells", "page_size"))
    if pcpu is not None and PCPU in resources:
        raise RequestError("pcpu", f"cannot be combined with {PCPU} in resources")
    has_numa = cells is not None or page_size is not None
    body = {
        "workload": {"uuid": str(uuid4()), "project_id": fields.get("project")},
        "resources": resources if pcpu is None else {**resources, PCPU: pcpu},
        "numa": {"nodes": cells, "page_size": page_size} if has_numa else None,
        "pci_requests": pci,
        "required_traits": fields["required"],
        **{name: fields.get(name) for name in ("host", "nodename")},
    }
    try:
        return parse_claim_request(body)
    except RequestError as error:
        name = next((name for path, name in _FIELDS.items() if error.path.startswith(path)), None)
        if name is None or (name == "pcpu" and pcpu is None):
            raise
        if error.path == "numa" and cells is None:
            name = "page_size"
        raise RequestError(name, error.reason) from None
