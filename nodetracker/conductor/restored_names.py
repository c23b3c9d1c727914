"""Give hosts their names again that a restored backup took from them.

A host that was renamed after the dump has its former name in the restored rows, and so has its
credential. Its agent goes on under the newer name, which nothing in the database confirms: a
thief of the credential could say any. What confirms it is this conductor's own memory of the
registrations and heartbeats that it has written.
"""

import logging

from nodetracker.conductor.authorization import Caller
from nodetracker.model.errors import (
    FencedError,
    NotFoundError,
    RefusedError,
    RpcUnavailableError,
)
from nodetracker.model.service import COMPUTE_BINARY, AgentKey, ServiceRecord
from nodetracker.ports import Store

LOG = logging.getLogger(__name__)


class RestoredNames:
    """Remembers by which name and epoch each agent held its host; any thread may call it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[str, AgentKey] = {}
        self._sent_on: set[str] = set()

    def note(self, agent: AgentKey) -> None:
        """Note the key of a heartbeat that was written."""
        self._held[agent.agent_id] = agent
        self._sent_on.discard(agent.agent_id)

    def note_registration(self, service: ServiceRecord) -> None:
        """Note the key of an agent that has taken its host."""
        agent_id = service.incarnation.agent_id
        key = service.host, service.binary, agent_id, service.epoch, service.uuid
        self.note(AgentKey(*key))

    def refuse(self, caller: Caller, agent: AgentKey) -> None:
        """Refuse a heartbeat under another name than the credential's, if it is of its agent.

        The host is renamed first where the database was certainly restored: the same services
        row has an older epoch, and another name, than when this conductor wrote to it. Epochs
        only rise otherwise, by `host rename` as well. The agent finds its row then, and
        registers as after any restore.

        Raises:
            FencedError: the agent looks for its row; it ends if that still has another name.
            RpcUnavailableError: another conductor may have written its heartbeats, or a dump is
                being loaded: the credential is in the database, and no services row of its host.
        """
        if agent.agent_id != caller.agent_id or agent.host == caller.host:
            return
        text = (
            f"the credential is that of host {caller.host}, not of host {agent.host}: if the host "
            f"was renamed, run nodetracker-manage host rename {caller.host} {agent.host}"
        )
        is_first = agent.agent_id not in self._sent_on
        if not self._rename(caller, agent) and (is_first or not self._has_row(caller)):
            self._sent_on.add(agent.agent_id)
            raise RpcUnavailableError(text)
        self._sent_on.discard(agent.agent_id)
        raise FencedError(text)

    def _rename(self, caller: Caller, agent: AgentKey) -> bool:
        held = self._held.get(agent.agent_id)
        if held is None or held.host != agent.host:
            return False
        problem = ""
        for service in self._store.list_services(caller.host, COMPUTE_BINARY):
            if _is_older(service, held):
                problem = self._try_rename(service, held)
        if any(_is_older(found, held) for found in self._store.list_services(held.host)):
            return True  # also if another heartbeat of the agent was first
        if problem:
            LOG.warning("Host %s is not renamed again: %s", caller.host, problem)
        return False

    def _has_row(self, caller: Caller) -> bool:
        services = self._store.list_services(caller.host, COMPUTE_BINARY)
        return any(service.incarnation.agent_id == caller.agent_id for service in services)

    def _try_rename(self, service: ServiceRecord, held: AgentKey) -> str:
        """Rename a host; return why it is refused, or nothing."""
        try:
            self._store.rename_host(service.host, held.host, COMPUTE_BINARY, service)
        except (NotFoundError, RefusedError) as error:
            return str(error)
        LOG.warning(
            "Host %s has its name again, which was %s in the database: that was restored from a "
            "backup that is older than epoch %d",
            held.host,
            service.host,
            held.epoch,
        )
        return ""


def _is_older(service: ServiceRecord, held: AgentKey) -> bool:
    key = service.uuid, service.incarnation.agent_id
    return key == (held.service_uuid, held.agent_id) and service.epoch < held.epoch
