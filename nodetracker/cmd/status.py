"""nodetracker-status: check whether this host is ready for the installed version.

Reads what `nodetracker.views.readiness` evaluates. Nothing is written:
no identity, no row, no file.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING

from oslo_config import cfg
from oslo_upgradecheck import upgradecheck

from nodetracker.accounting.audit.view import account
from nodetracker.accounting.placement.tree import OWNER_TRAIT
from nodetracker.accounting.placement.warnings import explain_name_conflicts, explain_old_version
from nodetracker.bootstrap.agent import build_driver, build_probes
from nodetracker.bootstrap.clients import build_placement_client
from nodetracker.bootstrap.conductor_client import build_http_caller, read_join_token
from nodetracker.bootstrap.settings import read_settings
from nodetracker.bootstrap.stores import build_sql_store, build_store
from nodetracker.cmd.configuration import load_configuration
from nodetracker.cmd.program import leave, run_program
from nodetracker.cmd.service_user import find_barrier, find_closed_file
from nodetracker.compute.identity import read_compute_id
from nodetracker.conductor.credential_file import read_credential
from nodetracker.db.schema import revisions
from nodetracker.model.claim import ClaimState
from nodetracker.model.errors import (
    AuthenticationError,
    DriverUnavailableError,
    NodetrackerError,
    NotJoinedError,
    StoreError,
)
from nodetracker.model.listing import ClaimQuery
from nodetracker.model.node import HostSnapshot, NodeListing, failed_snapshot
from nodetracker.model.service import COMPUTE_BINARY, COMPUTE_ID_FILE
from nodetracker.model.settings import AgentSettings
from nodetracker.ports import Driver, ReadingStore
from nodetracker.process.daemon import EXIT_USAGE
from nodetracker.process.state_file import read_state_file
from nodetracker.process.workers import Call, Executor
from nodetracker.views import readiness
from nodetracker.views.readiness import Verdict

if TYPE_CHECKING:
    from nodetracker.placement.client import PlacementClient


_CONDUCTOR_SECONDS = 10.0
LOG = logging.getLogger(__name__)
PROGRAM = "nodetracker-status"
_DESCRIPTION = (
    "upgrade check: checks whether this host is ready for the installed version. Writes nothing."
)

READ_BUDGETS = 3
"""Time limit for reading all nodes, in probe timeouts; some probes of a node wait for others."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``upgrade check``."""
    return run_program(PROGRAM, lambda: _run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: Sequence[str]) -> int:
    conf = cfg.CONF
    checks = UpgradeChecks()
    upgradecheck.register_cli_options(conf, checks)
    load_configuration(conf, arguments, PROGRAM, description=_DESCRIPTION)
    if conf.command.check != "check":
        print(
            f"{PROGRAM}: unknown command 'upgrade {conf.command.check}'; see --help",
            file=sys.stderr,
        )
        return EXIT_USAGE
    # The checks report failures; log lines would repeat them.
    if conf.debug:
        logging.basicConfig(level=logging.DEBUG, force=True)
    else:
        logging.disable()
    settings = read_settings(conf)
    checks.host = HostReader(build_driver(conf, settings, build_probes(settings)).driver, settings)
    checks.store = build_store(conf, is_read_only=True)
    checks.read_schema_differences = None
    checks.list_joined = lambda: [settings.host]
    checks.purges_claims = not conf.conductor.use_local or conf.database.released_claims_days > 0
    if not conf.conductor.use_local:
        checks.conductors = ConductorReader(conf)
    else:
        database = build_sql_store(conf, is_read_only=True)
        checks.read_schema_differences = lambda: revisions.check(database.engine)
        checks.list_joined = lambda: [known.host for known in database.list_credentials()]
        if database.engine.dialect.name != "sqlite":
            checks.try_calls = database.check_calls
    if conf.placement.enabled:
        checks.placement = build_placement_client(conf)
    upgradecheck.CONF = conf  # as the library's own main() does; --json is read from it
    return leave(upgradecheck.run(conf))


def _check(
    evaluate: Callable[["UpgradeChecks"], Verdict],
    others: tuple[type[NodetrackerError], ...] = (NotJoinedError,),
) -> Callable[..., upgradecheck.Result]:
    """Wrap a check: an error is a failure of this check and does not stop the others.

    Args:
        others: errors that other checks name.
    """

    @wraps(evaluate)
    def check(checks: "UpgradeChecks") -> upgradecheck.Result:
        try:
            verdict = evaluate(checks)
        except others:
            verdict = Verdict()  # of a host that has not joined, the check of conductors says so
        except NodetrackerError as error:
            verdict = readiness.failure(str(error))
        except Exception as error:
            LOG.debug("A check failed unexpectedly", exc_info=error)
            verdict = readiness.failure(
                f"the check failed with {type(error).__name__}; --debug shows the traceback"
            )
        return upgradecheck.Result(upgradecheck.Code(verdict.level), verdict.details)

    return check


_check_rows = partial(_check, others=(NotJoinedError, StoreError))
"""Wraps a check of rows: that the database cannot be read is named by the check of the schema."""


class UpgradeChecks(upgradecheck.UpgradeCommands):
    """The checks, in the order in which they are shown.

    The attributes are set once the configuration has been read.
    `read_schema_differences` is None where conductors access the database, and
    `purges_claims` is not known there; `conductors` is None elsewhere. `list_joined` returns
    the hosts that have a credential. `try_calls` raises StoreError if the agent may take no
    calls; it is None where that is not decided by the database's privileges.
    """

    host: "HostReader"
    store: ReadingStore
    conductors: "ConductorReader | None" = None
    placement: "PlacementClient | None" = None
    read_schema_differences: Callable[[], Sequence[str]] | None
    list_joined: Callable[[], Sequence[str]]
    try_calls: Callable[[], None] | None = None
    purges_claims: bool

    @_check
    def check_schema(self) -> Verdict:
        """Compare the database's schema with the one that this version expects."""
        if self.read_schema_differences is None:
            return Verdict()  # the conductors check it themselves
        return readiness.failures(self.read_schema_differences())

    @_check
    def check_conductors(self) -> Verdict:
        """Check whether conductors answer, and whether this host may call or join them."""
        if self.conductors is None:
            return Verdict()
        found = self.conductors
        verdict = readiness.evaluate_conductors(
            found.find_problems(), found.is_joined, found.find_obstacles()
        )
        if found.is_joined and verdict.level != readiness.Level.FAILURE:
            self.store.now()  # by the credential of this host
        return verdict

    @_check_rows
    def check_services(self) -> Verdict:
        """Search for services that cannot run beside this version, or not for long."""
        services, joined = self.store.list_services(), self.list_joined()
        hosts = [service.host for service in services if service.binary == COMPUTE_BINARY]
        return Verdict(
            readiness.evaluate_services(services).findings
            + readiness.evaluate_callees(services).findings
            + readiness.evaluate_spares(services).findings
            + readiness.evaluate_agents(services, joined).findings
            + readiness.evaluate_names([*hosts, *joined]).findings
        )

    @_check_rows
    def check_calls(self) -> Verdict:
        """Check whether the agent may take the calls of others."""
        if self.try_calls is None:
            return Verdict()  # the conductors take them
        self.store.list_services(self.host.settings.host)
        try:
            self.try_calls()
        except StoreError as error:
            return readiness.evaluate_privileges(str(error))
        return readiness.evaluate_privileges(None)

    @_check_rows
    def check_old_claims(self) -> Verdict:
        """Check whether the database keeps old claims that nothing deletes."""
        if self.purges_claims:
            return Verdict()
        page = self.store.list_claim_page(ClaimQuery(states=(ClaimState.RELEASED,), limit=1))
        return readiness.evaluate_old_claims(
            min((claim.updated_at for claim in page.items), default=None), page.now
        )

    @_check
    def check_nodes(self) -> Verdict:
        """Check whether the driver lists all nodes."""
        return readiness.evaluate_listing(self.host.listing)

    @_check
    def check_reserved(self) -> Verdict:
        """Compare the resources reserved for the host with its capacity."""
        return readiness.evaluate_reserved(self.host.snapshots, self.host.settings.policy)

    @_check
    def check_cpu_sets(self) -> Verdict:
        """Compare the configured CPU sets with the CPUs that are online, and with stored rows."""
        settings = self.host.settings
        try:
            rows = self.store.load_nodes(settings.host) if settings.policy.cpu_dedicated_set else []
        except NodetrackerError:
            rows = []  # the checks of schema and conductors name it
        return readiness.evaluate_cpu_sets(self.host.snapshots, settings.policy, rows)

    @_check
    def check_unresolved(self) -> Verdict:
        """List what the agent withholds because a guest may use it."""
        return readiness.evaluate_unresolved(self.host.snapshots, self.host.settings.policy)

    @_check_rows
    def check_free_amounts(self) -> Verdict:
        """List the nodes that offer less as soon as this version audits them."""
        records, now = self.store.load_nodes(self.host.settings.host), self.store.now()
        known = {record.nodename: record for record in records if record.has_stale_limits}
        policy = self.host.settings.policy
        return readiness.evaluate_free_amounts(
            (snapshot.nodename, account(snapshot, known[snapshot.nodename], policy, now).values)
            for snapshot in (self.host.snapshots if known else ())
            if snapshot.nodename in known
        )

    @_check
    def check_host_name(self) -> Verdict:
        """Search for this machine's agent under another host name."""
        path = self.host.compute_id_path
        try:
            agent_id = self.host.read_agent_id()
        except PermissionError:
            return readiness.warning(
                f"{path}: permission denied; run {PROGRAM} as root or as the agent's user"
            )
        except OSError as error:
            return readiness.failure(f"{path}: {error.strerror}")
        if agent_id is None:
            return Verdict()
        services = self.store.list_services(binary=COMPUTE_BINARY, agent_id=agent_id)
        return readiness.evaluate_host_name(self.host.settings.host, agent_id, services)

    @_check
    def check_liveness(self) -> Verdict:
        """Compare the heartbeats' interval with the time after which a host is down."""
        settings = self.host.settings
        return readiness.evaluate_liveness(settings.service_down_time, settings.report_interval)

    @_check
    def check_service_user(self) -> Verdict:
        """Check whether the user of the units can run this Python."""
        return readiness.evaluate_barrier(find_barrier())

    @_check
    def check_placement(self) -> Verdict:
        """Check whether placement accepts what this host reports, if it reports anything."""
        if self.placement is None:
            return Verdict()
        old = explain_old_version(self.placement.read_version())
        if old is not None:
            return readiness.failure(old)
        self.placement.list_traits([OWNER_TRAIT])
        conflicts = []
        for node in self.store.list_nodes(self.host.settings.host):
            held = {provider.uuid for provider in self.placement.list_providers(name=node.nodename)}
            conflicts += [(node.nodename, node.uuid, other) for other in held - {node.uuid}]
        return readiness.failures(explain_name_conflicts(conflicts))

    _upgrade_checks = (
        ("Database schema", check_schema),
        ("Conductors", check_conductors),
        ("Services", check_services),
        ("Calls", check_calls),
        ("Old claims", check_old_claims),
        ("Nodes", check_nodes),
        ("Reserved resources", check_reserved),
        ("CPU sets", check_cpu_sets),
        ("Unresolved devices", check_unresolved),
        ("Free amounts", check_free_amounts),
        ("Host name", check_host_name),
        ("Heartbeat interval", check_liveness),
        ("Service user", check_service_user),
        ("Placement", check_placement),
    )


class HostReader:
    """Reads this host once for all checks."""

    def __init__(self, driver: Driver, settings: AgentSettings) -> None:
        self.settings = settings
        self.compute_id_path = Path(settings.state_path) / COMPUTE_ID_FILE
        self._driver = driver

    @cached_property
    def listing(self) -> NodeListing:
        """The nodes that the driver manages now.

        Raises:
            ConfigError: the driver's own options are invalid.
            DriverUnavailableError: no source answers.
        """
        self._driver.init_host()
        return self._driver.get_available_nodes()

    @cached_property
    def snapshots(self) -> list[HostSnapshot]:
        """All nodes, read concurrently within a time limit.

        Raises: as `listing`.
        """
        names = self.listing.nodenames
        executor = Executor("read", self.settings.max_concurrent_audits, counts_queue=True)
        seconds = READ_BUDGETS * self.settings.probe_timeout
        calls = [
            executor.start(name, partial(self._driver.get_available_resource, name), seconds)
            for name in names
        ]
        return [self._finish(call) for call in calls]

    def read_agent_id(self) -> str | None:
        """Return the uuid of this machine's agent, None without one; create none.

        Raises:
            OSError: it cannot be read.
        """
        try:
            read_state_file(self.compute_id_path, 1)
        except FileNotFoundError:
            return None
        return read_compute_id(self.compute_id_path.parent)

    def _finish(self, call: Call[HostSnapshot]) -> HostSnapshot:
        if not call.wait():
            return failed_snapshot(call.source, f"node {call.source}", "was not read in time")
        try:
            return call.result()
        except DriverUnavailableError as error:
            return failed_snapshot(call.source, error.source, error.reason)


class ConductorReader:
    """Reads what keeps this host from calling conductors, or from joining them; it does neither."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._state_path = Path(conf.state_path)
        self._caller = build_http_caller(conf)

    @cached_property
    def is_joined(self) -> bool:
        """Whether this host has a credential.

        Raises:
            IdentityError: this user may not read it.
        """
        return read_credential(self._state_path) is not None

    def find_problems(self) -> dict[str, str | None]:
        """Return why each conductor does not answer, None for one that does."""
        return self._caller.connections.find_problems(_CONDUCTOR_SECONDS)

    def find_obstacles(self) -> list[str]:
        """Return what the agent lacks: a token before it has joined, and files that it may read."""
        group, problems = self._conf.conductor, []
        files = [("cafile", group.cafile)]
        if not self.is_joined:
            files.append(("join_token_file", group.join_token_file))
            try:
                if read_join_token(self._conf) is None:
                    problems.append(
                        "there is no join token: create one by 'nodetracker-manage agent token "
                        "create' where the database is, and set [conductor] join_token_file to a "
                        "file that has it"
                    )
            except AuthenticationError as error:
                return [str(error)]
        for option, path in files:
            problem = path and find_closed_file(path, self._state_path)
            if problem:
                problems.append(f"[conductor] {option}: {path}: {problem}")
        return problems


if __name__ == "__main__":
    sys.exit(main())
