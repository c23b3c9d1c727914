"""Evaluate whether a host is ready for this version, with one verdict per subject.

``nodetracker-status upgrade check`` gathers the data that is evaluated here.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nodetracker.accounting.audit.inventory import (
    gpu_columns,
    offered_cpus,
    reserved_count,
    unusable_cpu_sets,
)
from nodetracker.accounting.audit.view import account
from nodetracker.accounting.ledger.admission import list_capacities, ordinary_capacity
from nodetracker.accounting.liveness import explain_short_down_time
from nodetracker.accounting.numa.cells import list_guest_assignments, measure_huge_pages
from nodetracker.accounting.pci.state import sync_devices
from nodetracker.accounting.withheld import find_unresolved
from nodetracker.model.amount_text import Role, render_mib
from nodetracker.model.amounts import MEMORY
from nodetracker.model.cpuset import render_cpu_set
from nodetracker.model.errors import NotJoinedError
from nodetracker.model.fact import Fact
from nodetracker.model.host import CpuInfo, MemoryInfo, StorageInfo
from nodetracker.model.node import HostSnapshot, NodeListing, NodeRecord, NodeValues
from nodetracker.model.numa import NumaTopology, ReservedPages
from nodetracker.model.service import (
    API_BINARY,
    COMPUTE_BINARY,
    OLDEST_REVISION,
    SPARE_REVISION,
    ServiceRecord,
    takes_calls,
)
from nodetracker.model.settings import Policy
from nodetracker.model.text import escape_text, fold_host_name, name_some
from nodetracker.model.units import MIB_PER_GIB, capacity_gib_from_mib

_OLD_CLAIMS = timedelta(days=90)
_UPGRADE = "upgrade it, or delete it if it is gone (nodetracker-manage service delete)"


class Level(enum.IntEnum):
    """The severity of a finding, with oslo.upgradecheck's codes."""

    SUCCESS = 0
    WARNING = 1
    FAILURE = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem, with its solution where known."""

    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one check; without findings it succeeded."""

    findings: tuple[Finding, ...] = ()

    @property
    def level(self) -> Level:
        """The highest severity of the findings."""
        return max((finding.level for finding in self.findings), default=Level.SUCCESS)

    @property
    def details(self) -> str | None:
        """The findings in one line, the most severe first; None without findings."""
        ordered = sorted(self.findings, key=lambda finding: -finding.level)
        return "; ".join(finding.text for finding in ordered) or None


def failure(text: str) -> Verdict:
    """Build the verdict of one finding that must be resolved."""
    return Verdict((Finding(Level.FAILURE, text),))


def failures(texts: Iterable[str]) -> Verdict:
    """Build the verdict of findings that must be resolved; without any it succeeded."""
    return Verdict(tuple(Finding(Level.FAILURE, text) for text in texts))


def warning(text: str) -> Verdict:
    """Build the verdict of one finding that needs attention."""
    return Verdict((Finding(Level.WARNING, text),))


def evaluate_services(services: Iterable[ServiceRecord], oldest: str = OLDEST_REVISION) -> Verdict:
    """Evaluate whether services were written for a schema with `oldest` or a later revision.

    Those that do not report it may be of the version before or of an earlier one. A service
    that is down counts, as it may return.
    """
    by_level: dict[Level, list[str]] = {Level.FAILURE: [], Level.WARNING: []}
    for service in services:
        revision = service.last_audit.get("schema_revision")
        if revision is None or revision < oldest:
            level = Level.WARNING if revision is None else Level.FAILURE
            by_level[level].append(f"{service.binary} on host {service.host}")
    problems = {
        Level.FAILURE: f"written for a schema before revision {oldest}",
        Level.WARNING: "of a version that does not report the schema it was written for",
    }
    return Verdict(
        tuple(
            Finding(level, f"{name_some(names)}: {problems[level]}; {_UPGRADE}")
            for level, names in by_level.items()
            if names
        )
    )


def evaluate_agents(services: Iterable[ServiceRecord], joined: Collection[str]) -> Verdict:
    """Evaluate whether agents still use conductors of the release before, over the broker.

    Args:
        joined: hosts whose agents have a credential for conductors of this release.
    """
    names = [
        f"{service.binary} on host {service.host}"
        for service in services
        if service.last_audit.get("by_conductor") and service.host not in joined
    ]
    if not names:
        return Verdict()
    return warning(
        f"{name_some(names)}: calls conductors over the broker; join it by a token and [conductor] "
        "endpoint before the last conductor of the release before ends"
    )


def evaluate_names(hosts: Iterable[str]) -> Verdict:
    """Evaluate whether each host has a name that cannot be taken for that of another one."""
    alike: dict[str, list[str]] = {}
    for host in sorted(set(hosts)):
        alike.setdefault(fold_host_name(host), []).append(host)
    clashes = [names for names in alike.values() if len(names) > 1]
    return Verdict(
        tuple(
            Finding(
                Level.WARNING,
                f"{name_some([escape_text(name) for name in names])}: names of hosts that can be "
                "taken for each other; rename or delete all but one (nodetracker-manage host "
                "rename)",
            )
            for names in clashes
        )
    )


def evaluate_callees(services: Iterable[ServiceRecord]) -> Verdict:
    """Evaluate whether agents are of a release that takes calls from programs of this one."""
    names = [
        f"{service.binary} on host {service.host}"
        for service in services
        if service.binary == COMPUTE_BINARY and not takes_calls(service)
    ]
    if not names:
        return Verdict()
    return warning(
        f"{name_some(names)}: takes no calls (node audit, host action) of programs of this "
        "release; upgrade it before them"
    )


def evaluate_spares(services: Sequence[ServiceRecord]) -> Verdict:
    """Evaluate whether REST services are of a release that would place claims on spare hosts."""
    spares = [item.host for item in services if item.binary == COMPUTE_BINARY and item.spare]
    names = [
        f"{item.binary} on host {item.host}"
        for item in services
        if item.binary == API_BINARY
        and (item.last_audit.get("schema_revision") or "") < SPARE_REVISION
    ]
    if not spares or not names:
        return Verdict()
    return warning(
        f"{name_some(names)}: places claims on spare hosts ({name_some(spares)}) as on others; "
        "upgrade it"
    )


def evaluate_privileges(problem: str | None) -> Verdict:
    """Evaluate whether this host's user of the database may take and answer calls.

    Args:
        problem: why it may not, None if it may.
    """
    if problem is None:
        return Verdict()
    return warning(
        f"the agent takes no calls (node audit, host action): {problem}; grant SELECT, UPDATE "
        "(taken_at, answered_at, answer) ON host_calls to its user"
    )


def evaluate_conductors(
    problems: Mapping[str, str | None], is_joined: bool, obstacles: Sequence[str]
) -> Verdict:
    """Evaluate whether conductors answer, and whether the agent can call or join them.

    Args:
        problems: endpoint -> why it does not answer, None if it does.
        is_joined: this host has a credential.
        obstacles: what else keeps its agent from calling or joining them.
    """
    found = [f"{name}: {problem}" for name, problem in problems.items() if problem is not None]
    level = Level.FAILURE if len(found) == len(problems) else Level.WARNING
    findings = [Finding(Level.FAILURE, text) for text in obstacles]
    findings += [Finding(level, f"no conductor answers at {text}") for text in found]
    if not is_joined:
        findings.append(Finding(Level.SUCCESS, str(NotJoinedError())))
    return Verdict(tuple(findings))


def evaluate_listing(listing: NodeListing) -> Verdict:
    """Evaluate whether the driver listed every node, and at least one."""
    if listing.unreachable:
        return warning(f"not every node could be listed: {'; '.join(listing.unreachable)}")
    return Verdict() if listing.nodenames else warning("the driver lists no nodes")


@dataclass(frozen=True, slots=True)
class Barrier:
    """What keeps the service's user from running this installation.

    Attributes:
        directory: the one that the user may not enter, None if it is something else.
        problem: what the attempt reported.
    """

    user: str
    program: str
    directory: str | None
    problem: str


def evaluate_barrier(barrier: Barrier | None) -> Verdict:
    """Evaluate whether the service's user can run this installation."""
    if barrier is None:
        return Verdict()
    reason = (
        barrier.problem
        if barrier.directory is None
        else f"that user may not enter {barrier.directory}"
    )
    return failure(
        f"user {barrier.user} cannot run {barrier.program}: {reason}; install nodetracker into an "
        "environment of a Python that every user may run: "
        "/usr/bin/python3 -m venv --clear /opt/nodetracker"
    )


def evaluate_liveness(service_down_time: int, report_interval: int) -> Verdict:
    """Evaluate whether heartbeats are frequent enough; both arguments are in seconds."""
    problem = explain_short_down_time(service_down_time, report_interval)
    return Verdict() if problem is None else failure(problem)


def evaluate_old_claims(released_at: datetime | None, now: datetime) -> Verdict:
    """Evaluate whether old released claims are deleted.

    Args:
        released_at: when the oldest one was released, None without any.
    """
    if released_at is None or now - released_at < _OLD_CLAIMS:
        return Verdict()
    return warning(
        f"the database has claims that were released before {now - _OLD_CLAIMS:%Y-%m-%d}, and "
        "nothing deletes them: set [database] released_claims_days and history_days for the "
        "conductors and API services, or run nodetracker-manage db purge"
    )


def evaluate_host_name(host: str, agent_id: str, services: Iterable[ServiceRecord]) -> Verdict:
    """Evaluate whether this machine's agent is registered under its configured host name.

    Args:
        agent_id: the uuid in ``compute_id``.
        services: rows of any host.
    """
    others = [
        service.host
        for service in services
        if service.binary == COMPUTE_BINARY
        and service.incarnation.agent_id == agent_id
        and service.host != host
    ]
    return Verdict(
        tuple(
            Finding(
                Level.FAILURE,
                f"agent {agent_id} of this machine is registered as host {other} but configured "
                f"as {host}: restore [DEFAULT] host, or stop the agent and run "
                f"nodetracker-manage host rename {other} {host}",
            )
            for other in others
        )
    )


def evaluate_unresolved(snapshots: Iterable[HostSnapshot], policy: Policy) -> Verdict:
    """Evaluate whether guests use what nothing on the host can name, which the agent withholds."""
    findings = []
    for snapshot in snapshots:
        if snapshot.guests.value is None:
            continue
        listed = snapshot.guests.value
        devices = sync_devices({}, snapshot.pci.value or (), policy.pci.specs, snapshot.netdevs)
        gpus = gpu_columns(snapshot.gpus.value or ())["gpus"]
        for warned in find_unresolved(
            snapshot.nodename, listed.guests, gpus, devices, policy.withholds_unresolved
        ):
            text = f"node {snapshot.nodename}: {warned.message}"
            findings.append(Finding(Level.WARNING, text))
    return Verdict(tuple(findings))


def evaluate_free_amounts(nodes: Iterable[tuple[str, NodeValues]]) -> Verdict:
    """Evaluate which nodes have less memory free for claims, as huge pages are left out of it.

    Args:
        nodes: name of each node that this version has not audited yet, and what it would store.
    """
    findings = []
    for nodename, values in nodes:
        memory, ordinary = list_capacities(values)[MEMORY], ordinary_capacity(values)
        if ordinary is None:
            continue
        pages = measure_huge_pages(values.numa_topology)
        before, after = (item.own_limit - item.used for item in (memory, ordinary))
        beyond = "; its claims stay, and others are refused" if after < 0 else ""
        text = (
            f"node {nodename}: {render_mib(after, Role.FREE)} instead of "
            f"{render_mib(before, Role.FREE)} of memory are free for claims without a page size: "
            f"{render_mib(pages.total_mb)} are huge pages, of which "
            f"{render_mib(pages.used_mb)} are used{beyond}"
        )
        findings.append(Finding(Level.WARNING, text))
    return Verdict(tuple(findings))


def evaluate_cpu_sets(
    snapshots: Iterable[HostSnapshot], policy: Policy, rows: Iterable[NodeRecord] = ()
) -> Verdict:
    """Evaluate whether the CPUs of ``cpu_shared_set`` and ``cpu_dedicated_set`` are online.

    And whether guests name so many dedicated CPUs that fewer are free than stored rows say.
    """
    stored = {row.nodename: row for row in rows}
    if policy.cpu_shared_set is None and policy.cpu_dedicated_set is None:
        return Verdict()
    findings: list[Finding] = []
    for snapshot in snapshots:
        if snapshot.cpu.value is None:
            findings.append(_not_read(snapshot, "CPUs", snapshot.cpu))
            continue
        for option, lacking, none_left in unusable_cpu_sets(snapshot.cpu.value.online, policy):
            cpus = render_cpu_set(lacking)
            findings.append(
                Finding(
                    Level.FAILURE,
                    f"node {snapshot.nodename}: {option}: none of {cpus} is online",
                )
                if none_left
                else Finding(
                    Level.WARNING,
                    f"node {snapshot.nodename}: {option}: {cpus} is offline and ignored",
                )
            )
        if snapshot.nodename in stored:
            findings += _evaluate_named_cpus(snapshot, stored[snapshot.nodename], policy)
    return Verdict(tuple(findings))


def _evaluate_named_cpus(
    snapshot: HostSnapshot, row: NodeRecord, policy: Policy
) -> Iterator[Finding]:
    assert row.updated_at is not None, "it is stored"
    view = account(snapshot, row, policy, row.updated_at)
    before, after = (known.pcpus - known.pcpus_used for known in (row.values, view.values))
    named = {
        view.guests[uuid].name or uuid
        for uuid, numa in list_guest_assignments(view.guests.values()).items()
        if any(cell.isolated for cell in numa.cells)
    }
    if after < before and named:
        yield Finding(
            Level.WARNING,
            f"node {snapshot.nodename}: {after} PCPU are free instead of {before}, as guests name "
            f"CPUs of cpu_dedicated_set: {name_some(named)}",
        )


def evaluate_reserved(snapshots: Iterable[HostSnapshot], policy: Policy) -> Verdict:
    """Evaluate whether each node has the capacity that is reserved on it.

    Reserving more than the capacity is a failure, reserving all of it a
    warning. Capacity is as in rows: whole GiB of disk, and the shared CPUs.
    """
    return Verdict(
        tuple(finding for snapshot in snapshots for finding in _evaluate(snapshot, policy))
    )


def _evaluate(snapshot: HostSnapshot, policy: Policy) -> Iterator[Finding]:
    for reserved, what, fact, evaluate in (
        (policy.reserved_memory_mb, "memory", snapshot.memory, _evaluate_memory),
        (policy.reserved_disk_mb, "storage", snapshot.storage, _evaluate_disk),
        (policy.reserved_cpus, "CPUs", snapshot.cpu, _evaluate_cpus),
        (policy.reserved_pages, "NUMA cells", snapshot.numa, _evaluate_pages),
    ):
        if reserved:
            known: Any = fact.value
            missing = _not_read(snapshot, what, fact)
            yield from [missing] if known is None else evaluate(snapshot, known, policy)


def _evaluate_memory(
    snapshot: HostSnapshot, memory: MemoryInfo, policy: Policy
) -> Iterator[Finding]:
    reserved, total = policy.reserved_memory_mb, memory.total_mb
    return _compare(snapshot, "reserved_host_memory_mb", reserved, total, "of memory", _render_mib)


def _evaluate_disk(
    snapshot: HostSnapshot, storage: StorageInfo, policy: Policy
) -> Iterator[Finding]:
    filesystem = storage.instances
    return _compare(
        snapshot,
        "reserved_host_disk_mb",
        policy.reserved_disk_mb,
        capacity_gib_from_mib(filesystem.total_mb) * MIB_PER_GIB,
        f"of disk at {filesystem.path}" if filesystem.path else "of disk",
        _render_mib,
    )


def _evaluate_cpus(snapshot: HostSnapshot, cpu: CpuInfo, policy: Policy) -> Iterator[Finding]:
    count = len(offered_cpus(cpu.online, policy)[0])
    what = "CPUs that guests share"
    return _compare(snapshot, "reserved_host_cpus", policy.reserved_cpus, count, what)


def _evaluate_pages(
    snapshot: HostSnapshot, topology: NumaTopology, policy: Policy
) -> Iterator[Finding]:
    for cell_id, size_kb in sorted(
        {(pages.cell, pages.size_kb) for pages in policy.reserved_pages}
    ):
        count = reserved_count(policy.reserved_pages, cell_id, size_kb)
        yield from _evaluate_pool(snapshot, topology, ReservedPages(cell_id, size_kb, count))


def _evaluate_pool(
    snapshot: HostSnapshot, topology: NumaTopology, wanted: ReservedPages
) -> Iterator[Finding]:
    where = f"node {snapshot.nodename}: reserved_huge_pages"
    cell = topology.cell(wanted.cell)
    if cell is None:
        yield Finding(Level.FAILURE, f"{where}: NUMA cell {wanted.cell} does not exist")
        return
    pool = next((pool for pool in cell.pages if pool.size_kb == wanted.size_kb), None)
    if pool is None:
        yield Finding(
            Level.FAILURE, f"{where}: cell {cell.id} has no pages of {wanted.size_kb} KiB"
        )
        return
    yield from _compare(
        snapshot,
        "reserved_huge_pages",
        wanted.count,
        pool.total - pool.reserved,
        f"pages of {wanted.size_kb} KiB in cell {cell.id}",
    )


def _compare(
    snapshot: HostSnapshot,
    option: str,
    reserved: int,
    capacity: int,
    what: str,
    render: Callable[[int], str] = str,
) -> Iterator[Finding]:
    where = f"node {snapshot.nodename}: {option}"
    if reserved > capacity:
        yield Finding(
            Level.FAILURE, f"{where}: {render(reserved)} exceeds the {render(capacity)} {what}"
        )
    elif reserved and reserved == capacity:
        yield Finding(
            Level.WARNING,
            f"{where}: {render(reserved)} reserves all {render(capacity)} {what}; nothing is left "
            "for guests",
        )


def _render_mib(mib: int) -> str:
    return render_mib(mib, Role.REQUESTED)


def _not_read(snapshot: HostSnapshot, what: str, fact: Fact[Any]) -> Finding:
    return Finding(
        Level.WARNING,
        f"node {snapshot.nodename}: {what} could not be read ({fact.source}: {fact.error})",
    )
