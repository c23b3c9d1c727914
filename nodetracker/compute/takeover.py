"""Decide whether this agent may manage its host, and take the host over if so.

An agent that reported its end is gone. One whose process can be looked up from
here is known to be alive or gone. The services row of any other is watched for
two of its heartbeats.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nodetracker.accounting.liveness import has_ended, limit_interval
from nodetracker.compute.identity import is_process_alive, is_same_machine
from nodetracker.model.change import is_removed
from nodetracker.model.credential import CREDENTIAL_FILE
from nodetracker.model.errors import (
    ConflictError,
    DuplicateAgentError,
    IdentityError,
    StoppingError,
    StoreError,
)
from nodetracker.model.listing import HistoryQuery
from nodetracker.model.service import (
    COMPUTE_BINARY,
    COMPUTE_ID_FILE,
    Incarnation,
    ServiceRecord,
)
from nodetracker.model.settings import AgentSettings
from nodetracker.model.warning import WHOLE_HOST, HostWarning, WarningKind
from nodetracker.ports import AgentKey, FleetStore, WatchStore

LOG = logging.getLogger(__name__)

COMPUTE_TOPIC = "compute"
WATCHED_HEARTBEATS = 2

_ATTEMPTS = 5
_POLLS_PER_HEARTBEAT = 5

Wait = Callable[[float], bool]
"""Waits for some seconds; returns True when the process is to end instead."""


def get_watch_seconds(report_interval: int) -> int:
    """Return how long an agent that does not run is watched.

    >>> get_watch_seconds(10)
    20
    """
    return WATCHED_HEARTBEATS * report_interval


class HeartbeatWatch:
    """Finds out whether an agent is alive by its services row.

    Only the count of heartbeats and the holder in the row are compared,
    never two clocks. Waits are counted, not the time that passes: while the
    database does not answer or the machine is paused, the other agent cannot
    send heartbeats either.

    Args:
        wait: waits between two readings of the row.
    """

    def __init__(self, store: FleetStore, wait: Wait) -> None:
        self._store = store
        self._wait = wait

    def find_alive(self, record: ServiceRecord, report_interval: int) -> ServiceRecord | None:
        """Watch a row for two heartbeats.

        Args:
            record: the row as it was read last.
            report_interval: seconds between two heartbeats.

        Returns:
            The row as soon as it has changed; None when it does not change, is deleted
            or its agent reports its end.

        Raises:
            StoppingError: the process ends meanwhile.
        """
        for _ in range(WATCHED_HEARTBEATS * _POLLS_PER_HEARTBEAT):
            if self._wait(report_interval / _POLLS_PER_HEARTBEAT):
                raise StoppingError("stopped while another agent's heartbeats were watched")
            found = self._store.list_services(record.host, record.binary)
            if not found or has_ended(found[0]):
                return None
            if _version(found[0]) != _version(record):
                return found[0]
        return None


def _version(record: ServiceRecord) -> tuple[str, int, int]:
    return record.incarnation.agent_id, record.epoch, record.report_count


class Takeover:
    """Decides whether one run of an agent may manage its host, and takes the services row.

    Args:
        version: of the software, as the services row shows it.
        wait: see `HeartbeatWatch`.
    """

    def __init__(
        self,
        settings: AgentSettings,
        incarnation: Incarnation,
        version: str,
        store: WatchStore,
        wait: Wait,
    ) -> None:
        self._settings = settings
        self._incarnation = incarnation
        self._version = version
        self._store = store
        self._wait = wait
        self._heartbeats = HeartbeatWatch(store, wait)

    def take_host(self, held_epoch: int = 0) -> ServiceRecord:
        """Take the host's services row, raising its epoch; return the row.

        Args:
            held_epoch: of this run until the row was restored from a backup.

        Raises:
            DuplicateAgentError: an agent that is alive holds the host, or has
                this agent's identity.
            IdentityError: this agent managed another host name before.
            StoppingError: the process ends.
            StoreError: the database is unavailable, or others took the row repeatedly.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            self._check_other_hosts()  # first: conductors show a copy no row of its own host
            own = self._read_own()
            if own is not None:
                self._check_own_host(own)
            try:
                return self._store.register_agent(
                    self._settings.host,
                    COMPUTE_BINARY,
                    COMPUTE_TOPIC,
                    self._version,
                    self._incarnation,
                    own,
                    held_epoch,
                )
            except ConflictError:
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def is_restored(self, held: AgentKey) -> bool:
        """Return whether the services row that was lost was replaced by a backup's, or is missing.

        A missing one is looked for again after a heartbeat's interval, as the backup may
        still be loading. A row of this run is a backup's even if it is as the last heartbeat
        wrote it: it was away when the key was lost.

        Args:
            held: the key by which this run held the host, with its last heartbeat.

        Returns:
            False if another agent or a newer run holds the host, or if it was deleted or renamed.

        Raises:
            IdentityError: the backup has the services row under a former name of the host.
            StoppingError: the process ends meanwhile.
            StoreError: the database did not answer.
        """
        # First: conductors show no row of a host that is not the credential's.
        for row in self._store.list_services(binary=COMPUTE_BINARY, agent_id=held.agent_id):
            if row.uuid == held.service_uuid and row.host != held.host:
                return self._refuse_former_name(row, held)
        own = self._read_own()
        if own is None and not self._is_removed(held):
            interval = self._settings.report_interval
            LOG.info("Host %s has no services row; looking again in %d s", held.host, interval)
            if self._wait(interval):
                raise StoppingError("stopped while a backup may have been loading")
            own = self._read_own()
        if own is None:
            return not self._is_removed(held)
        if own.incarnation.agent_id != held.agent_id or own.epoch > held.epoch:
            return False
        if own.uuid != held.service_uuid:
            return not self._is_removed(held)
        return True

    def _refuse_former_name(self, row: ServiceRecord, held: AgentKey) -> bool:
        """Return False for a host that was renamed while the agent ran, else raise.

        Renaming raises the epoch.
        """
        if row.epoch >= held.epoch:
            return False
        raise IdentityError(
            f"the database was restored from a backup in which host {held.host} is still called "
            f"{row.host}: run 'nodetracker-manage host rename {row.host} {held.host}', then start "
            "this agent again"
        )

    def _is_removed(self, held: AgentKey) -> bool:
        """Return whether the history has the deletion or renaming of the host since it was held."""
        query = HistoryQuery(host=held.host, nodename=WHOLE_HOST)
        while True:
            page = self._store.list_history_page(query)
            if page.next is None or is_removed(held, page.items):
                return is_removed(held, page.items)
            query = replace(query, after=page.next)

    def _read_own(self) -> ServiceRecord | None:
        found = self._store.list_services(self._settings.host, COMPUTE_BINARY)
        return found[0] if found else None

    def _check_own_host(self, own: ServiceRecord) -> None:
        """Refuse when the agent that holds this host is alive."""
        if has_ended(own):
            return
        is_mine = own.incarnation.agent_id == self._incarnation.agent_id
        if is_mine and is_same_machine(own.incarnation, self._incarnation):
            # A row of this same run: the answer was lost when it was written.
            if own.incarnation != self._incarnation and is_process_alive(own.incarnation):
                self._refuse(
                    own,
                    f"host {own.host} already has an agent: {self._describe(own)}, on this "
                    "machine; stop that agent first",
                )
            return
        holder_now = self._watch(own)
        if holder_now is None:
            return
        cure = (
            f"if this machine is a copy of the other, {self._cure} and set its own "
            "[DEFAULT] host; if both share a state directory, give each its own"
            if is_mine
            else "set another [DEFAULT] host on one of them"
        )
        self._refuse(
            holder_now,
            f"host {own.host} already has an agent, which is alive: {self._describe(holder_now)}; "
            f"this is {self._describe_self()}; {cure}",
        )

    def _check_other_hosts(self) -> None:
        """Refuse when this agent's identity is stored under another host name."""
        agent_id = self._incarnation.agent_id
        found = self._store.list_services(binary=COMPUTE_BINARY, agent_id=agent_id)
        is_known_here = any(record.host == self._settings.host for record in found)
        for other in found:
            if other.host == self._settings.host:
                continue
            alive = self._find_alive(other)
            if alive is not None:
                self._refuse(
                    alive,
                    f"agent {agent_id} manages host {other.host} and is alive: "
                    f"{self._describe(alive)}; this is {self._describe_self()}, with [DEFAULT] "
                    f"host = {self._settings.host}: if this machine is a copy of the other, "
                    f"{self._cure} to make this a new agent",
                )
            if not is_known_here:
                raise IdentityError(
                    f"agent {agent_id} managed host {other.host}, but [DEFAULT] host is "
                    f"{self._settings.host}: if the host was renamed, run 'nodetracker-manage host "
                    f"rename {other.host} {self._settings.host}'; otherwise set [DEFAULT] host = "
                    f"{other.host}; if this machine is a copy of the other, {self._cure}"
                )

    def _find_alive(self, record: ServiceRecord) -> ServiceRecord | None:
        """Return the newest state of a row whose agent is alive, None when it is not."""
        if has_ended(record):
            return None
        if is_same_machine(record.incarnation, self._incarnation):
            return record if is_process_alive(record.incarnation) else None
        return self._watch(record)

    def _watch(self, record: ServiceRecord) -> ServiceRecord | None:
        """Return the row of an agent that sends heartbeats, None when it does not.

        Raises:
            StoppingError: the process ends meanwhile.
        """
        other = limit_interval(record, self._settings.service_down_time)
        interval = max(self._settings.report_interval, other)
        LOG.info(
            "Host %s is held by %s; watching its heartbeats for %d s",
            record.host,
            self._describe(record),
            get_watch_seconds(interval),
        )
        alive = self._heartbeats.find_alive(record, interval)
        if alive is None:
            LOG.info("Host %s: %s sends no heartbeats", record.host, self._describe(record))
        return alive

    def _refuse(self, holder: ServiceRecord, message: str) -> None:
        """Store a warning at the holder's host, and raise."""
        warning = HostWarning(
            WarningKind.DUPLICATE_REFUSED,
            WHOLE_HOST,
            self._incarnation.agent_id,
            f"a second agent tried to manage this host and was refused: {self._describe_self()}",
        )
        try:
            self._store.raise_warning(holder.host, warning)
        except StoreError as error:
            LOG.debug("The warning of the refusal could not be stored: %s", error)
        raise DuplicateAgentError(message)

    def _describe(self, record: ServiceRecord) -> str:
        return describe_run(record.incarnation, self._find_address(record.host), record.epoch)

    def _describe_self(self) -> str:
        return describe_run(self._incarnation, self._settings.policy.host_ip)

    def _find_address(self, host: str) -> str:
        """Return the address in a host's rows, "" without one."""
        try:
            return next((node.values.host_ip for node in self._store.list_nodes(host)), "")
        except StoreError:
            return ""

    @property
    def _cure(self) -> str:
        state = Path(self._settings.state_path)
        text = f"delete {state / COMPUTE_ID_FILE}"
        credential = state / CREDENTIAL_FILE
        return f"{text} and {credential}" if credential.exists() else text


def describe_run(incarnation: Incarnation, address: str, epoch: int | None = None) -> str:
    """Identify one run of an agent for an operator."""
    parts = [f"agent {incarnation.agent_id} (process {incarnation.pid}"]
    if epoch is not None:
        parts.append(f"epoch {epoch}")
    if address:
        parts.append(f"address {address}")
    return ", ".join([*parts, f"boot {incarnation.boot_id or 'unknown'})"])
