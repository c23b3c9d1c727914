"""The REST service in process, on SQLite in memory."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

import falcon.testing
import pytest
from jsonschema import Draft202012Validator

from nodetracker.api.agents import AgentCalls
from nodetracker.api.application import answer_exhaustion, build_application
from nodetracker.api.auth.layer import LoginFailures
from nodetracker.api.call import Backend
from nodetracker.api.context import IDENTITY, Identity, RequestContext
from nodetracker.api.family import Family, family_of
from nodetracker.api.fleet_cache import FleetCache
from nodetracker.api.layers import request_id_layer
from nodetracker.api.openapi import ERROR
from nodetracker.api.route import Route
from nodetracker.api.routes import ROUTES
from nodetracker.metrics.api import ApiCounters, ApiMetrics, RequestCounter, StoreErrorCounter
from nodetracker.metrics.claim_counter import ClaimCounter
from nodetracker.model.errors import ExhaustedError, RpcUnavailableError
from nodetracker.model.health import ApiStatus
from nodetracker.model.settings import AdmissionPolicy, SchedulerSettings
from nodetracker.ports import Store
from nodetracker.process.outage import OutageLog
from nodetracker.usecases.plans import HostPlanner
from nodetracker.usecases.scheduler import Scheduler
from nodetracker.views.health import evaluate_api_health
from tests.builders import make_incarnation, take_service
from tests.settings import make_api_settings
from tests.stores import SqliteStore

LOG = logging.getLogger("nodetracker.api")

ADMIN = Identity("alice", "p1", frozenset({"admin"}))


class Rules:
    """Allows everything but the rules named, and remembers what it was asked."""

    def __init__(self) -> None:
        self.denied: set[str] = set()

    def is_allowed(
        self, context: RequestContext, rule: str, target: Mapping[str, Any] | None = None
    ) -> bool:
        return rule not in self.denied

    def list_allowed(self, context: RequestContext) -> list[str]:
        return []


class SilentAgents:
    """An `AgentDirectory` of agents of which none answers."""

    def agent_of(self, host: str) -> Any:
        raise RpcUnavailableError(f"the agent of {host} does not answer")


class Queues:
    """Remembers the services whose queues are to be deleted."""

    def __init__(self) -> None:
        self.deleted: list[tuple[str, str]] = []

    def __call__(self, host: str, binary: str) -> None:
        self.deleted.append((host, binary))


def make_backend(store: Store, down_after: int = 60) -> Backend:
    """Return a backend over a store, with an authorizer that allows everything."""
    policy = AdmissionPolicy(down_after, 600)
    settings = make_api_settings("api-1", service_down_time=down_after)
    counters = ApiCounters(RequestCounter(), ClaimCounter(), StoreErrorCounter())
    return Backend(
        version="1.2.3",
        settings=settings,
        store=store,
        agents=AgentCalls(SilentAgents()),
        policy=policy,
        scheduler=Scheduler(store, policy),
        planner=HostPlanner(store, policy, SchedulerSettings()),
        fleet=FleetCache(store, settings),
        authorizer=Rules(),
        delete_queues=Queues(),
        counters=counters,
        metrics=ApiMetrics("1.2.3", counters, LoginFailures(), lambda: True),
        read_health=lambda: evaluate_api_health(ApiStatus(heartbeat_age_seconds=1.0)),
    )


@dataclass
class Api:
    """The service with the identity of its next requests; checks every answer.

    Each JSON answer below ``/v1`` has the schema that the route table declares.
    """

    backend: Backend
    routes: tuple[Route, ...] = ROUTES
    identity: Identity | Exception | None = ADMIN
    headers: dict[str, str] = field(default_factory=dict)
    limits: OutageLog = field(
        default_factory=lambda: OutageLog("The REST service", ExhaustedError, LOG)
    )

    def __post_init__(self) -> None:
        limiting = partial(answer_exhaustion, limits=self.limits)
        application = build_application(self.backend, self.routes, [limiting, request_id_layer])
        # In a function, as falcon's client inspects what it calls.
        self._client = falcon.testing.TestClient(lambda environ, start: application(environ, start))

    @property
    def rules(self) -> Rules:
        return self.backend.authorizer

    def request(self, method: str, path: str, **options: Any) -> falcon.testing.Result:
        headers = self.headers | options.pop("headers", {})
        # As servers do; falcon's client loses bytes that are not UTF-8.
        raw_path = unquote_to_bytes(path.partition("?")[0]).decode("latin-1")
        extras = {IDENTITY: self.identity, "PATH_INFO": raw_path}
        found = self._client.simulate_request(
            method, path, headers=headers, extras=extras, **options
        )
        self._check(method, path, found)
        return found

    def get(self, path: str, version: str | None = None, **options: Any) -> Any:
        """Return the body of a GET that succeeds."""
        found = self.request("GET", path, headers=microversion(path, version), **options)
        assert found.status_code == 200, found.text
        return found.json

    def _check(self, method: str, path: str, found: falcon.testing.Result) -> None:
        bare, status = path.partition("?")[0].rstrip("/"), found.status_code
        if family_of(bare) is not Family.OWN or not found.content or "gzip" in str(found.headers):
            return
        schema = ERROR if status >= 400 else self._find_answer(method, bare, status)
        Draft202012Validator(schema).validate(json.loads(found.content))

    def _find_answer(self, method: str, path: str, status: int) -> Any:
        for known in self.routes:
            names = known.path.split("/")
            parts = path.split("/")
            if len(names) == len(parts) and all(
                name.startswith("{") or name == part
                for name, part in zip(names, parts, strict=True)
            ):
                return known.methods[method][0].answers[status]
        raise AssertionError(f"no route {path}")


def microversion(path: str, version: str | None) -> dict[str, str]:
    """Return the header of a microversion of the path's family."""
    service = "container" if family_of(path) is Family.ZUN else "compute"
    return {} if version is None else {"OpenStack-API-Version": f"{service} {version}"}


@pytest.fixture
def store() -> SqliteStore:
    return SqliteStore()


@pytest.fixture
def backend(store: SqliteStore) -> Backend:
    return make_backend(store)


@pytest.fixture
def api(backend: Backend) -> Api:
    return Api(backend)


def add_service(store: SqliteStore, host: str, binary: str, number: int = 1) -> None:
    """Let a service report a heartbeat."""
    agent_id = f"22222222-2222-4222-8222-{number:012d}"
    take_service(store, host, replace(make_incarnation(), agent_id=agent_id), binary)


def follow(api, path, noun):
    seen = []
    while path:
        page = api.get(path)
        seen += page[noun]
        path = page["links"] and page["links"][0]["href"].partition("falconframework.org")[2]
    return seen
