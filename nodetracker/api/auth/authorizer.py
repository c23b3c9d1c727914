"""Evaluate policy rules for identities."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from oslo_policy.policy import Enforcer, InvalidDefinitionError

from nodetracker.api.context import Identity, RequestContext
from nodetracker.api.policies import list_rules
from nodetracker.model.errors import ConfigError

LOG = logging.getLogger(__name__)

_ALL_SYSTEM = "all"
_OWN = ("user_id", "project_id")

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
            target = {key: credentials[key] for key in _OWN if key in credentials}
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
