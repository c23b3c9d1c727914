"""nodetracker-compute: the agent."""

import logging
import os
import sys
from collections.abc import Sequence

from oslo_config import cfg

from nodetracker.accounting.liveness import is_service_up
from nodetracker.bootstrap import Agent, build_agent
from nodetracker.cmd.program import load_configuration, run_program, start_logging
from nodetracker.compute.identity import is_process_alive, is_same_machine
from nodetracker.daemon import EXIT_DONE, EXIT_FAILED, Daemon
from nodetracker.errors import RefusedError
from nodetracker.model.audit import AuditReport
from nodetracker.model.service import COMPUTE_BINARY

PROGRAM = "nodetracker-compute"

_ONCE = cfg.BoolOpt(
    "once", default=False, help="Audit every node once, write the rows, print a line a node, exit."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent, or one audit."""
    return run_program(PROGRAM, lambda: _run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: Sequence[str]) -> int:
    conf = cfg.CONF
    conf.register_cli_opt(_ONCE)
    load_configuration(conf, arguments, PROGRAM)
    start_logging(conf)
    agent = build_agent(conf)
    if conf.once:
        return audit_once(agent)
    code = Daemon(agent.service, agent.settings.graceful_shutdown_timeout).run()
    return leave(code)


def leave(code: int) -> int:
    """End the process now: a hung call's thread must not keep it."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def audit_once(agent: Agent) -> int:
    """Audit every node once and print a line for each.

    Raises:
        RefusedError: a live agent answers for this host.
        StoreError: the rows could not be written.
    """
    _refuse_beside_live_agent(agent)
    agent.manager.init_host()
    report = agent.manager.update_available_resource(startup=True)
    agent.manager.beat()
    for line in render_lines(report):
        print(line)
    agent.manager.cleanup_host()
    return leave(EXIT_DONE if report.is_good else EXIT_FAILED)


def render_lines(report: AuditReport) -> list[str]:
    """Say of each node what it has, what is used and what the audit did to its row."""
    done = {change.nodename: change.kind.value for change in report.changes}
    lines = []
    for name, record in sorted(report.nodes.items()):
        values = record.values
        outcome = report.errors.get(name) or done.get(name, "unchanged")
        lines.append(
            f"{name}: vcpus {values.vcpus_used}/{values.vcpus}, "
            f"memory {values.memory_mb_used}/{values.memory_mb} MiB, "
            f"disk {values.local_gb_used}/{values.local_gb} GiB, "
            f"{len(record.guests)} guests: {outcome}"
        )
    unwritten = report.errors.keys() - report.nodes.keys()
    lines += [f"{name}: no row: {report.errors[name]}" for name in sorted(unwritten)]
    if report.listing_error is not None:
        lines.append(f"not every node could be listed: {report.listing_error}")
    return lines


def _refuse_beside_live_agent(agent: Agent) -> None:
    services = agent.store.list_services(agent.settings.host, COMPUTE_BINARY)
    if not services:
        return
    service = services[0]
    if is_same_machine(service.incarnation, agent.incarnation):
        is_alive = is_process_alive(service.incarnation)
    else:
        is_alive = is_service_up(service, agent.store.now(), agent.settings.service_down_time)
    if is_alive:
        raise RefusedError(
            f"an agent of host {service.host} is running (process {service.incarnation.pid}) "
            "and keeps its rows; stop it first"
        )


if __name__ == "__main__":
    sys.exit(main())
