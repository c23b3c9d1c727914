"""Hosts with nodes, for those that read fleets."""

from typing import Any

from nodetracker.model.service import CONDUCTOR_BINARY, AuditState
from nodetracker.ports import Store
from tests.builders import create, key_of, make_incarnation, make_values, register, take_service


def add_host(store: Store, host: str, *nodenames: str, **changes: Any) -> None:
    """Add a live host with nodes."""
    agent = register(store, host, f"agent-of-{host}")
    store.report_state(agent, 1, AuditState(1.0))
    nodes = [create(agent, name, make_values(**changes)) for name in nodenames]
    store.apply_changes(agent, nodes, 60)


def add_host_without_agent(store: Store, host: str, *nodenames: str) -> None:
    """Add nodes whose host has no services row of an agent."""
    agent = key_of(take_service(store, host, make_incarnation(f"none-{host}"), CONDUCTOR_BINARY))
    store.apply_changes(agent, [create(agent, name) for name in nodenames], 60)
