"""What the agent knows of itself at one moment, for its health, its metrics and systemd."""

from dataclasses import dataclass, field

from nodetracker.model.service import AuditState


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """The state that the agent holds already; nothing is asked to find it out.

    Attributes:
        host, agent_id: whom the agent answers for, and who it is.
        epoch: of the take-over; None until the services row is taken.
        has_started: the first audit has been tried, whatever became of it.
        audit: the ages that the heartbeat carries too.
        audit_interval: seconds between audits; None = only on demand.
        fine_nodes: nodes that the last stored audit read in full.
        database_error: why the database cannot be used now, None while it can.
        driver_error: why nodes could not be listed, None when they were.
        heartbeat_age_seconds: since the last heartbeat that was written; None = never.
        service_down_time: seconds of silence after which others take this host for down.
        report_count: heartbeats written to the services row, as it stands there.
        clock_skew_seconds: this host's clock minus the database's; None = unknown.
        rpc_error: why others' calls are not served yet; None = they are, or need not be.
        notifications_error: why notifications wait to be sent, None while they do not.
    """

    host: str
    agent_id: str
    epoch: int | None = None
    has_started: bool = False
    audit: AuditState = field(default_factory=AuditState)
    audit_interval: float | None = None
    fine_nodes: int = 0
    database_error: str | None = None
    driver_error: str | None = None
    heartbeat_age_seconds: float | None = None
    service_down_time: float = 60.0
    report_count: int = 0
    clock_skew_seconds: float | None = None
    rpc_error: str | None = None
    notifications_error: str | None = None

    @property
    def node_count(self) -> int:
        """How many nodes the last stored audit knew."""
        return self.fine_nodes + len(self.audit.nodes)
