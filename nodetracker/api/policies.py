"""Policy: the rules of who may do what, unless ``policy.yaml`` overrides them, and their use.

Rules of Nova's and Zun's resources have Nova's and Zun's names.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oslo_policy.policy import DocumentedRuleDefault, Enforcer, InvalidDefinitionError, RuleDefault

from nodetracker.api.context import Identity, RequestContext
from nodetracker.model.errors import ConfigError

LOG = logging.getLogger(__name__)

_ALL_SYSTEM = "all"
_OWN_PROJECT = ("user_id", "project_id")

RELOAD_SECONDS = 1.0
"""How long rules and decisions are kept before the policy files are checked for changes.

The library checks them for each decision, which takes most of the time of a request that
is answered by 304 (seen with 6.0).
"""

_ADMIN = "rule:admin"
_FLEET_READER = "rule:fleet_reader"
_SERVICE = "rule:admin or rule:service"
_PLACER = "rule:fleet_reader or rule:service"
_PROJECT_READER = "rule:fleet_reader or rule:project_reader"
_CLAIM_READER = "rule:fleet_reader or rule:service or rule:project_reader"
_ANYBODY = "@"

FLEET_READER = "fleet_reader"
"""The rule of those to whom no list is cut to a project."""

HOST_RULE = "nodetracker:host_attributes:show"
"""The rule of those who see on which hosts something is."""

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


_RULES: Mapping[str, tuple[str, str]] = {
    "os_compute_api:os-hypervisors:list": (_FLEET_READER, "List hypervisors."),
    "os_compute_api:os-hypervisors:list-detail": (_FLEET_READER, "List hypervisors with details."),
    "os_compute_api:os-hypervisors:statistics": (_FLEET_READER, "Sum all hypervisors."),
    "os_compute_api:os-hypervisors:show": (_FLEET_READER, "Show a hypervisor."),
    "os_compute_api:os-hypervisors:uptime": (_FLEET_READER, "Show a hypervisor's uptime."),
    "os_compute_api:os-hypervisors:search": (
        _FLEET_READER,
        "Search hypervisors by a part of their names.",
    ),
    "os_compute_api:os-hypervisors:servers": (
        _FLEET_READER,
        "List the guests of hypervisors by name.",
    ),
    "os_compute_api:os-services:list": (_FLEET_READER, "List services."),
    "os_compute_api:os-services:update": (
        _ADMIN,
        "Enable or disable a service, or force it down.",
    ),
    "os_compute_api:os-services:delete": (_ADMIN, "Delete a service."),
    "os_compute_api:os-hosts:list": (_FLEET_READER, "List hosts."),
    "os_compute_api:os-hosts:show": (_FLEET_READER, "Show a host by project."),
    "os_compute_api:os-hosts:update": (_ADMIN, "Change a host's state."),
    "os_compute_api:os-hosts:reboot": (_ADMIN, "Reboot a host."),
    "os_compute_api:os-hosts:shutdown": (_ADMIN, "Shut down a host."),
    "os_compute_api:os-hosts:start": (_ADMIN, "Start up a host."),
    "os_compute_api:os-aggregates:index": (_FLEET_READER, "List host aggregates."),
    "os_compute_api:os-availability-zone:list": (_FLEET_READER, "List availability zones."),
    "os_compute_api:os-availability-zone:detail": (
        _FLEET_READER,
        "List availability zones with their hosts.",
    ),
    "os_compute_api:limits": (_ANYBODY, "Show the usage of the user's own project."),
    "host:get_all": (_FLEET_READER, "List hosts."),
    "host:get": (_FLEET_READER, "Show a host."),
    "nodetracker:about:show": (_ANYBODY, "Show the version and the user."),
    "nodetracker:overview:show": (_FLEET_READER, "Show the whole fleet."),
    "nodetracker:metrics:show": (
        _FLEET_READER,
        "Show the fleet's metrics, unless [api] open_metrics is set.",
    ),
    "nodetracker:health:show": (
        _FLEET_READER,
        "Show the texts of problems in the service's health, which is open without them.",
    ),
    "nodetracker:nodes:list": (_FLEET_READER, "List nodes."),
    "nodetracker:nodes:show": (_FLEET_READER, "Show a node and what belongs to it."),
    "nodetracker:nodes:delete": (_ADMIN, "Delete the node of a host that is down."),
    "nodetracker:nodes:audit": (_ADMIN, "Audit a node."),
    "nodetracker:nodes:accept": (_ADMIN, "Accept the capacity of a node that jumped."),
    "nodetracker:nodes:adopt": (_ADMIN, "Give a node the uuid of a provider in placement."),
    "nodetracker:placement:heal": (_ADMIN, "Make placement agree with the ledger."),
    "nodetracker:hosts:list": (_FLEET_READER, "List hosts."),
    "nodetracker:hosts:show": (_FLEET_READER, "Show a host by project."),
    "nodetracker:hosts:action": (_ADMIN, "Power a host on or off."),
    "nodetracker:hosts:purge": (
        _ADMIN,
        "Delete all nodes of a host that is down, with the claims on them.",
    ),
    "nodetracker:services:list": (_FLEET_READER, "List services."),
    "nodetracker:services:show": (_FLEET_READER, "Show a service."),
    "nodetracker:services:update": (_ADMIN, "Change a service's state."),
    "nodetracker:services:delete": (_ADMIN, "Delete a service."),
    "nodetracker:workloads:list": (_PROJECT_READER, "List workloads."),
    "nodetracker:workloads:show": (_PROJECT_READER, "Show a workload."),
    HOST_RULE: (
        _PLACER,
        "Show on which hosts and nodes workloads, claims and migrations are, with their NUMA "
        "cells, CPUs, PCI addresses and the driver's details, and list them by host.",
    ),
    "nodetracker:workloads:adopt": (_ADMIN, "Make a confirmed claim of a guest without one."),
    "nodetracker:usages:list": (_PROJECT_READER, "Sum what projects use."),
    "nodetracker:claims:list": (_CLAIM_READER, "List claims."),
    "nodetracker:claims:show": (_CLAIM_READER, "Show a claim."),
    "nodetracker:claims:create": (_SERVICE, "Create a claim, or try to."),
    "nodetracker:claims:limits": (_SERVICE, "Widen the limits of a claim."),
    "nodetracker:claims:abort": (_SERVICE, "Abort a claim."),
    "nodetracker:claims:confirm": (_SERVICE, "Confirm a claim."),
    "nodetracker:claims:renew": (_SERVICE, "Renew a claim."),
    "nodetracker:migrations:list": (_PLACER, "List migrations."),
    "nodetracker:migrations:show": (_PLACER, "Show a migration."),
    "nodetracker:migrations:create": (_SERVICE, "Create a migration."),
    "nodetracker:migrations:update": (_SERVICE, "Set a migration's status."),
    "nodetracker:migrations:confirm": (_SERVICE, "Confirm a migration."),
    "nodetracker:migrations:revert": (_SERVICE, "Revert a migration."),
    "nodetracker:candidates:list": (_PLACER, "List candidates, and GPUs that can be requested."),
    "nodetracker:plans:create": (_PLACER, "Plan where the guests of hosts would fit elsewhere."),
    "nodetracker:history:list": (_FLEET_READER, "List changes of nodes."),
    "nodetracker:warnings:list": (_FLEET_READER, "List warnings."),
    "nodetracker:warnings:silence": (_ADMIN, "Leave a warning out of health and counts."),
}
"""Rule -> who may do it by default, and what."""

_FURTHER_OPERATIONS = {
    "nodetracker:health:show": ("GET /health",),
    "nodetracker:claims:limits": ("POST /v1/claims",),
    HOST_RULE: tuple(
        f"GET /v1/{path}"
        for path in (
            "workloads", "workloads/{uuid}", "usages", "claims", "claims/{uuid}", "migrations",
            "migrations/{uuid}",
        )
    ),
}  # fmt: skip
"""Rule -> operations of other rules that it decides as well."""


def list_rules() -> tuple[RuleDefault, ...]:
    """Return all rules with their defaults, in the order of the sample file."""
    return (*_BASE, *(RuleDefault(name, *rule) for name, rule in _RULES.items()))


def document_rules(operations: Mapping[str, Sequence[str]]) -> tuple[RuleDefault, ...]:
    """Return all rules with the operations that they decide, for the sample file.

    Args:
        operations: rule -> operations such as ``GET /v1/nodes``.
    """
    documented = []
    for name, (check, description) in _RULES.items():
        found = (*operations.get(name, ()), *_FURTHER_OPERATIONS.get(name, ()))
        pairs: list[Any] = [
            dict(zip(("method", "path"), each.split(" "), strict=True)) for each in found
        ]
        documented.append(DocumentedRuleDefault(name, check, description, pairs))
    return (*_BASE, *documented)


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
