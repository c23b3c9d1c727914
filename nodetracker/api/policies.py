"""Policy: the rules of who may do what, unless ``policy.yaml`` overrides them, and their use.

Rules of Nova's and Zun's resources have Nova's and Zun's names.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from oslo_policy.policy import DocumentedRuleDefault, Enforcer, InvalidDefinitionError, RuleDefault

from nodetracker.api.context import Identity, RequestContext
from nodetracker.model.errors import ConfigError

_ADMIN = "rule:admin"
_FLEET_READER = "rule:fleet_reader"
_SERVICE = "rule:admin or rule:service"
_PLACER = "rule:fleet_reader or rule:service"
_PROJECT_READER = "rule:fleet_reader or rule:project_reader"
_CLAIM_READER = "rule:fleet_reader or rule:service or rule:project_reader"
_ANYBODY = "@"

FLEET_READER = "fleet_reader"
"""The rule of those to whom no list is cut to a project."""

_BASE = (
    RuleDefault("admin", "role:admin", "Administrators."),
    RuleDefault(
        FLEET_READER,
        "rule:admin or (role:reader and system_scope:all)",
        "Users who read everything: administrators, and readers with system scope.",
    ),
    RuleDefault("service", "role:service", "Other services, such as schedulers."),
    RuleDefault(
        "project_reader",
        "(role:reader or role:member) and project_id:%(project_id)s",
        "Members and readers of the project to which an object belongs.",
    ),
)


def _rule(name: str, check: str, description: str, *operations: str) -> DocumentedRuleDefault:
    pairs = [operation.split(" ") for operation in operations]
    documented: list[Any] = [{"method": method, "path": path} for method, path in pairs]
    return DocumentedRuleDefault(name, check, description, documented)


def _hypervisors(verb: str, description: str, path: str) -> DocumentedRuleDefault:
    name = f"os_compute_api:os-hypervisors:{verb}"
    return _rule(name, _FLEET_READER, description, f"GET /v2.1/os-hypervisors{path}")


def _services(verb: str, check: str, description: str, *operations: str) -> DocumentedRuleDefault:
    return _rule(f"os_compute_api:os-services:{verb}", check, description, *operations)


def _hosts(verb: str, check: str, description: str, operation: str) -> DocumentedRuleDefault:
    return _rule(f"os_compute_api:os-hosts:{verb}", check, description, operation)


_NOVA = (
    _hypervisors("list", "List hypervisors.", ""),
    _hypervisors("list-detail", "List hypervisors with details.", "/detail"),
    _hypervisors("statistics", "Sum all hypervisors.", "/statistics"),
    _hypervisors("show", "Show a hypervisor.", "/{id}"),
    _hypervisors("uptime", "Show a hypervisor's uptime.", "/{id}/uptime"),
    _hypervisors("search", "Search hypervisors by a part of their names.", "/{id}/search"),
    _hypervisors("servers", "List the guests of hypervisors by name.", "/{id}/servers"),
    _services("list", _FLEET_READER, "List services.", "GET /v2.1/os-services"),
    _services(
        "update",
        _ADMIN,
        "Enable or disable a service, or force it down.",
        "PUT /v2.1/os-services/{id}",
        "PUT /v2.1/os-services/enable",
        "PUT /v2.1/os-services/disable",
        "PUT /v2.1/os-services/disable-log-reason",
        "PUT /v2.1/os-services/force-down",
    ),
    _services("delete", _ADMIN, "Delete a service.", "DELETE /v2.1/os-services/{id}"),
    _hosts("list", _FLEET_READER, "List hosts.", "GET /v2.1/os-hosts"),
    _hosts("show", _FLEET_READER, "Show a host by project.", "GET /v2.1/os-hosts/{host}"),
    _hosts("update", _ADMIN, "Change a host's state.", "PUT /v2.1/os-hosts/{host}"),
    _hosts("reboot", _ADMIN, "Reboot a host.", "GET /v2.1/os-hosts/{host}/reboot"),
    _hosts("shutdown", _ADMIN, "Shut down a host.", "GET /v2.1/os-hosts/{host}/shutdown"),
    _hosts("start", _ADMIN, "Start up a host.", "GET /v2.1/os-hosts/{host}/startup"),
    _rule(
        "os_compute_api:os-aggregates:index",
        _FLEET_READER,
        "List host aggregates.",
        "GET /v2.1/os-aggregates",
    ),
    _rule(
        "os_compute_api:os-availability-zone:list",
        _FLEET_READER,
        "List availability zones.",
        "GET /v2.1/os-availability-zone",
    ),
    _rule(
        "os_compute_api:os-availability-zone:detail",
        _FLEET_READER,
        "List availability zones with their hosts.",
        "GET /v2.1/os-availability-zone/detail",
    ),
    _rule(
        "os_compute_api:limits",
        _ANYBODY,
        "Show the usage of the user's own project.",
        "GET /v2.1/limits",
    ),
)

_ZUN = (
    _rule("host:get_all", _FLEET_READER, "List hosts.", "GET /container/v1/hosts"),
    _rule("host:get", _FLEET_READER, "Show a host.", "GET /container/v1/hosts/{id}"),
)


def _own(noun: str, verb: str, check: str, description: str, *operations: str) -> RuleDefault:
    documented = [operation.replace(" ", " /v1/", 1) for operation in operations]
    return _rule(f"nodetracker:{noun}:{verb}", check, description, *documented)


_OWN = (
    _own("about", "show", _ANYBODY, "Show the version and the user.", "GET about"),
    _own("overview", "show", _FLEET_READER, "Show the whole fleet.", "GET overview"),
    _rule(
        "nodetracker:metrics:show",
        _FLEET_READER,
        "Show the fleet's metrics, unless [api] open_metrics is set.",
        "GET /metrics",
    ),
    _rule(
        "nodetracker:health:show",
        _FLEET_READER,
        "Show the texts of problems in the service's health, which is open without them.",
        "GET /health",
    ),
    _own("nodes", "list", _FLEET_READER, "List nodes.", "GET nodes"),
    _own(
        "nodes",
        "show",
        _FLEET_READER,
        "Show a node and what belongs to it.",
        "GET nodes/{uuid}",
        "GET nodes/{uuid}/workloads",
        "GET nodes/{uuid}/claims",
        "GET nodes/{uuid}/devices",
        "GET nodes/{uuid}/actions",
        "GET nodes/{uuid}/description",
        "GET nodes/{uuid}/diff",
        "GET nodes/{uuid}/history",
        "GET nodes/{uuid}/warnings",
    ),
    _own(
        "nodes", "delete", _ADMIN, "Delete the node of a host that is down.", "DELETE nodes/{uuid}"
    ),
    _own("nodes", "audit", _ADMIN, "Audit a node.", "POST nodes/{uuid}/audit"),
    _own("hosts", "list", _FLEET_READER, "List hosts.", "GET hosts"),
    _own("hosts", "show", _FLEET_READER, "Show a host by project.", "GET hosts/{host}"),
    _own("hosts", "action", _ADMIN, "Power a host on or off.", "POST hosts/{host}/actions"),
    _own("services", "list", _FLEET_READER, "List services.", "GET services"),
    _own("services", "show", _FLEET_READER, "Show a service.", "GET services/{uuid}"),
    _own("services", "update", _ADMIN, "Change a service's state.", "PATCH services/{uuid}"),
    _own("services", "delete", _ADMIN, "Delete a service.", "DELETE services/{uuid}"),
    _own("workloads", "list", _PROJECT_READER, "List workloads.", "GET workloads"),
    _own("workloads", "show", _PROJECT_READER, "Show a workload.", "GET workloads/{uuid}"),
    _own(
        "host_attributes",
        "show",
        _PLACER,
        "Show on which hosts and nodes workloads, claims and migrations are, with their NUMA "
        "cells, CPUs, PCI addresses and the driver's details, and list them by host.",
        "GET workloads",
        "GET workloads/{uuid}",
        "GET usages",
        "GET claims",
        "GET claims/{uuid}",
        "GET migrations",
        "GET migrations/{uuid}",
    ),
    _own("usages", "list", _PROJECT_READER, "Sum what projects use.", "GET usages"),
    _own("claims", "list", _CLAIM_READER, "List claims.", "GET claims"),
    _own("claims", "show", _CLAIM_READER, "Show a claim.", "GET claims/{uuid}"),
    _own("claims", "create", _SERVICE, "Create a claim, or try to.", "POST claims"),
    _own("claims", "limits", _SERVICE, "Widen the limits of a claim.", "POST claims"),
    _own("claims", "abort", _SERVICE, "Abort a claim.", "DELETE claims/{uuid}"),
    _own("claims", "confirm", _SERVICE, "Confirm a claim.", "POST claims/{uuid}/confirm"),
    _own("claims", "renew", _SERVICE, "Renew a claim.", "POST claims/{uuid}/renew"),
    _own("migrations", "list", _PLACER, "List migrations.", "GET migrations"),
    _own("migrations", "show", _PLACER, "Show a migration.", "GET migrations/{uuid}"),
    _own("migrations", "create", _SERVICE, "Create a migration.", "POST migrations"),
    _own("migrations", "update", _SERVICE, "Set a migration's status.", "PATCH migrations/{uuid}"),
    _own(
        "migrations", "confirm", _SERVICE, "Confirm a migration.", "POST migrations/{uuid}/confirm"
    ),
    _own("migrations", "revert", _SERVICE, "Revert a migration.", "POST migrations/{uuid}/revert"),
    _own("candidates", "list", _PLACER, "List candidates.", "GET candidates", "POST candidates"),
    _own("history", "list", _FLEET_READER, "List changes of nodes.", "GET history"),
    _own("warnings", "list", _FLEET_READER, "List warnings.", "GET warnings"),
)


def list_rules() -> tuple[RuleDefault, ...]:
    """Return all rules with their defaults, in the order of the sample file."""
    return (*_BASE, *_NOVA, *_ZUN, *_OWN)


LOG = logging.getLogger(__name__)

_ALL_SYSTEM = "all"
_OWN_PROJECT = ("user_id", "project_id")

RELOAD_SECONDS = 1.0
"""How long rules and decisions are kept before the policy files are checked for changes.

The library checks them for each decision, which takes most of the time of a request that
is answered by 304 (seen with 6.0).
"""


class PolicyAuthorizer:
    """Decides by the policy rules what an identity may do.

    A policy file that becomes invalid is logged, and the rules from before remain.

    Args:
        seconds: monotonic time.
    """

    def __init__(self, enforcer: Enforcer, seconds: Callable[[], float] = time.monotonic) -> None:
        self._enforcer = enforcer
        self._seconds = seconds
        # The library replaces its rules in steps when a file has changed (seen with 6.0).
        self._lock = threading.Lock()
        self._problem = ""
        self._until = seconds()
        self._decided: dict[tuple[str, Identity], bool] = {}  # without a target

    def is_allowed(
        self, context: RequestContext, rule: str, target: Mapping[str, Any] | None = None
    ) -> bool:
        """Return whether a rule allows the request.

        Args:
            target: attributes of the object, such as its ``project_id``; None = an
                object of the user's own project.
        """
        identity = context.identity
        if identity is None:
            return False
        with self._lock:
            if self._seconds() >= self._until:
                self._reload()
                self._until = self._seconds() + RELOAD_SECONDS
            if target is not None:
                return self._decide(identity, rule, target)
            is_allowed = self._decided.get((rule, identity))
            if is_allowed is None:
                is_allowed = self._decided[rule, identity] = self._decide(identity, rule)
            return is_allowed

    def _decide(
        self, identity: Identity, rule: str, target: Mapping[str, Any] | None = None
    ) -> bool:
        credentials = _render_credentials(identity)
        if target is None:
            target = {key: credentials[key] for key in _OWN_PROJECT if key in credentials}
        return bool(self._enforcer.authorize(rule, target, credentials))

    def _reload(self) -> None:
        """Read policy files that changed, and forget decisions."""
        self._decided.clear()
        problem, before = "", self._enforcer.rules
        self._enforcer.use_conf = True
        try:
            self._enforcer.load_rules()
            if self._enforcer.rules is not before:
                self._enforcer.check_rules(raise_on_violation=True)
        except Exception as error:  # many types, for what is in the file
            self._enforcer.rules = before
            problem = _one_line(error)
        self._enforcer.use_conf = False  # as evaluating a rule reads the files too
        if problem not in ("", self._problem):
            LOG.error("Policy file: %s; keeping the previous rules", problem)
        self._problem = problem

    def list_allowed(self, context: RequestContext) -> list[str]:
        """Return the names of all rules that allow the identity, sorted.

        Rules on objects of projects are those on the user's own project.
        """
        names = sorted(rule.name for rule in list_rules() if ":" in rule.name)
        return [name for name in names if self.is_allowed(context, name)]


def make_enforcer(conf: Any) -> Enforcer:
    """Return the enforcer of the rules and the policy files that override them.

    Args:
        conf: oslo.config's object; the library registers its options itself.

    Raises:
        ConfigError: a policy file cannot be read, or is invalid.
    """
    enforcer = Enforcer(conf)
    enforcer.register_defaults(list_rules())
    try:
        enforcer.load_rules()
        enforcer.check_rules(raise_on_violation=True)
    except InvalidDefinitionError as error:
        raise ConfigError(f"[oslo_policy] policy_file: {_one_line(error)}") from error
    except Exception as error:  # many types, for what is in the file
        path = enforcer.policy_path or conf.oslo_policy.policy_file
        raise ConfigError(f"[oslo_policy] policy_file: {path}: {_one_line(error)}") from error
    return enforcer


def _render_credentials(identity: Identity) -> dict[str, Any]:
    """Return what rules can check; what is unknown is missing, as the library compares text."""
    credentials: dict[str, Any] = {"user_id": identity.user_id, "roles": sorted(identity.roles)}
    if identity.project_id is not None:
        credentials["project_id"] = identity.project_id
    if identity.is_system:
        credentials["system_scope"] = _ALL_SYSTEM
    return credentials


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
