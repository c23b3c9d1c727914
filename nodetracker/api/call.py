"""What a handler gets of a request, and what it returns."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlencode

from nodetracker.api.agents import AgentCalls
from nodetracker.api.context import Login, RequestContext
from nodetracker.api.encoding import EncodedBody
from nodetracker.api.family import Version
from nodetracker.api.fleet_cache import FleetCache
from nodetracker.api.policies import HOST_RULE, PolicyAuthorizer
from nodetracker.metrics.api import ApiCounters, ApiMetrics
from nodetracker.model.errors import ForbiddenError
from nodetracker.model.health import Health
from nodetracker.model.settings import ApiSettings
from nodetracker.ports import AdmissionPolicy, Store
from nodetracker.usecases.plans import HostPlanner
from nodetracker.usecases.scheduler import Scheduler

if TYPE_CHECKING:
    from nodetracker.usecases.healing import PlacementHealer

_HOST_FIELDS = frozenset(
    {
        "host", "nodename", "node_uuid", "source_host", "source_node", "dest_host", "dest_node",
        "numa", "devices", "pools", "details",
    }
)  # fmt: skip
_HOST_FILTERS = ("host", "nodename")


class Sessions(Protocol):
    """Opens and closes the sessions of browsers."""

    def open(self, login: Login, address: str) -> str:
        """Return the token of a new session.

        Args:
            address: the client's.

        Raises:
            AuthenticationError: the login is refused.
            ThrottledError: too many logins are being checked, or failed.
        """

    def close(self, token: str) -> None:
        """End a session; failures are logged."""


@dataclass(frozen=True, slots=True)
class Backend:
    """What all handlers share.

    Attributes:
        sessions: None where browsers cannot open any.
        delete_queues: deletes a deleted service's queues (host, binary) from the broker.
        counters: of what requests do.
        metrics: renders these counters.
        read_health: returns the service's current health, without any query.
        placement: None where placement is not enabled.
    """

    version: str
    settings: ApiSettings
    store: Store
    agents: AgentCalls
    policy: AdmissionPolicy
    scheduler: Scheduler
    planner: HostPlanner
    fleet: FleetCache
    authorizer: PolicyAuthorizer
    delete_queues: Callable[[str, str], None]
    counters: ApiCounters
    metrics: ApiMetrics
    read_health: Callable[[], Health]
    sessions: Sessions | None = None
    placement: "PlacementHealer | None" = None


@dataclass(frozen=True, slots=True)
class RequestUrl:
    """The URL of a request, from which links are made.

    Attributes:
        prefix: what precedes the path, e.g. ``https://api.example.org:8774``.
        path: decoded, e.g. ``/v1/nodes``.
        query: names and values in the order of the request.
    """

    prefix: str
    path: str
    query: tuple[tuple[str, str], ...] = ()

    @property
    def is_secure(self) -> bool:
        """Whether clients use TLS."""
        return self.prefix.startswith("https:")

    def link(self, path: str) -> str:
        """Return the URL of another path."""
        return self.prefix + quote(path)

    def with_query(self, **changes: str | int) -> str:
        """Return this URL with other values of some parameters."""
        kept = [pair for pair in self.query if pair[0] not in changes]
        return f"{self.link(self.path)}?{urlencode([*kept, *changes.items()])}"


@dataclass(frozen=True, slots=True)
class Call:
    """One request; when a handler gets it, rule, query and body are checked as well.

    Attributes:
        version: its microversion; meaningless in nodetracker's own API.
        params: of the path, e.g. ``{"id": "7"}``.
        query: parameters with the types of the operation's schema; empty before its check.
        body: the JSON document; None before its check, and where the operation takes none.
    """

    backend: Backend
    context: RequestContext
    url: RequestUrl
    version: Version
    params: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None

    @property
    def store(self) -> Store:
        """The store."""
        return self.backend.store

    @property
    def service_down_time(self) -> int:
        """Seconds without a heartbeat after which a service is down."""
        return self.backend.settings.service_down_time

    @property
    def limit(self) -> int:
        """How many items of a list are wanted at most."""
        highest = self.backend.settings.max_limit
        wanted: int = self.query.get("limit", highest)
        return min(wanted, highest)

    @property
    def marker(self) -> str | None:
        """The last item of the page before, None = the first page of the list is wanted."""
        return self.query.get("marker")

    @property
    def user_id(self) -> str:
        """The id of the user who makes the request, "" = anonymous."""
        return "" if self.context.identity is None else self.context.identity.user_id

    @property
    def user_name(self) -> str | None:
        """The name of the user who makes the request, None = anonymous."""
        return None if self.context.identity is None else self.context.identity.name

    def is_allowed(self, rule: str, target: Mapping[str, Any] | None = None) -> bool:
        """Return whether a rule allows the request."""
        return self.backend.authorizer.is_allowed(self.context, rule, target)

    def hide_hosts(self, shown: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object of an answer as far as the caller may see it.

        Otherwise names of hosts, pins and addresses of devices are null.
        """
        return dict(shown) if self.is_allowed(HOST_RULE) else _without_hosts(shown)

    def require_hosts(self) -> None:
        """Check that the caller may see hosts if the query has a filter by host or node.

        Raises:
            ForbiddenError: it may not, and would learn from the answer which ones there are.
        """
        for name in _HOST_FILTERS:
            if name in self.query and not self.is_allowed(HOST_RULE):
                raise ForbiddenError(f"{name}: policy does not allow {HOST_RULE} to be performed.")

    def find_visible_project(self, rule: str) -> str | None:
        """Return the only project whose objects may be shown or changed, None for those of all.

        Args:
            rule: of the operation, which allows the request.
        """
        if self.is_allowed(rule, {}):  # without a project, as an object of nobody's
            return None
        identity = self.context.identity
        assert identity is not None, "the operation is not open"
        if identity.project_id is None:
            raise ForbiddenError(f"Policy does not allow {rule} to be performed.")
        return identity.project_id

    def select_project(self, rule: str, wanted: str | None) -> str | None:
        """Return the project of which a list shows objects, None for those of all.

        Args:
            rule: of the list, which allows the request.
            wanted: the project that the request names, None = any.

        Raises:
            ForbiddenError: the caller may not see objects of that project.
        """
        visible = self.find_visible_project(rule)
        if visible is None:
            return wanted
        if wanted not in (None, visible):
            raise ForbiddenError(f"project: policy does not allow {rule} for another project.")
        return visible


def _without_hosts(shown: Any) -> Any:
    if isinstance(shown, Mapping):
        return {
            name: None if name in _HOST_FIELDS else _without_hosts(value)
            for name, value in shown.items()
        }
    return [_without_hosts(item) for item in shown] if isinstance(shown, list) else shown


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler returns.

    Attributes:
        body: JSON, None = no body.
        page: a body that is not JSON; `headers` has its type.
        encoded: a JSON body that many answers share, instead of `body`.
        stream: parts of a JSON document that is too long for memory, instead of `body`.
        session_token: value of the session cookie, "" to delete it; None = no cookie.
    """

    body: Mapping[str, Any] | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    page: bytes | None = None
    encoded: EncodedBody | None = None
    stream: Iterator[bytes] | None = None
    session_token: str | None = field(default=None, repr=False)


Handler = Callable[[Call], Answer]
