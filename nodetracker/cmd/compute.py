"""nodetracker-compute: the agent."""

import sys
from collections.abc import Callable, Sequence

from oslo_config import cfg

from nodetracker.bootstrap.agent import Agent, build_agent, prepare_agent
from nodetracker.bootstrap.options.opts import register_options
from nodetracker.cmd.configuration import load_configuration
from nodetracker.cmd.program import leave, run_agent, run_program, start
from nodetracker.cmd.screen.streams import write_output
from nodetracker.model.amount_text import render_of
from nodetracker.model.amounts import DISK, MEMORY
from nodetracker.model.audit import AuditReport
from nodetracker.model.errors import DuplicateAgentError, RefusedError
from nodetracker.model.text import count_noun
from nodetracker.process.daemon import EXIT_DONE, EXIT_FAILED

PROGRAM = "nodetracker-compute"
_DESCRIPTION = "The agent of a compute host: reads its nodes and keeps their rows up to date."
_ONCE = cfg.BoolOpt(
    "once",
    default=False,
    help="Audit every node once, write the rows, report them to placement if that is enabled, "
    "print a line per node and exit.",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent, or one audit."""
    return run_program(PROGRAM, lambda: _run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: Sequence[str]) -> int:
    def load(conf: cfg.ConfigOpts, register: Callable[[cfg.ConfigOpts], None]) -> None:
        conf.register_cli_opt(_ONCE)
        load_configuration(conf, arguments, PROGRAM, register=register, description=_DESCRIPTION)

    conf = cfg.CONF
    load(conf, register_options)
    agent = build_agent(conf, start(conf, prepare_agent), is_served=not conf.once)
    if conf.once:
        return leave(audit_once(agent))
    return leave(run_agent(conf, load, agent, PROGRAM))


def audit_once(agent: Agent) -> int:
    """Audit every node once and print a line for each; return the exit code.

    Waits for the notifications and for what is reported to placement. The host
    is down afterwards, as after the end of any agent.

    Raises:
        RefusedError: another agent that is alive manages this host.
        IdentityError: this agent may not manage this host.
        StoreError: the rows could not be written.
    """
    try:
        return _audit_once(agent)
    finally:
        agent.manager.report_end()
        agent.store.close()
        if agent.notifier is not None:
            agent.notifier.flush()


def _audit_once(agent: Agent) -> int:
    agent.manager.init_host()
    try:
        report = agent.manager.update_available_resource(startup=True)
    except DuplicateAgentError as error:
        raise RefusedError(str(error)) from None
    try:
        if agent.reporter is not None:
            agent.reporter.report_once()
        agent.manager.cleanup_host()
    finally:
        write_output("".join(f"{line}\n" for line in render_lines(report)))
    return EXIT_DONE if report.is_good else EXIT_FAILED


def render_lines(report: AuditReport) -> list[str]:
    """Return a line per node: its resources, their usage and the outcome of the audit."""
    done = {change.nodename: change.kind.value for change in report.changes}
    lines = []
    for name, record in sorted(report.nodes.items()):
        values = record.values
        outcome = report.errors.get(name) or done.get(name, "unchanged")
        lines.append(
            f"{name}: vcpus {values.vcpus_used}/{values.vcpus}, "
            f"memory {render_of(MEMORY, values.memory_mb_used, values.memory_mb, '/')}, "
            f"disk {render_of(DISK, values.local_gb_used, values.local_gb, '/')}, "
            f"{count_noun(len(record.guests), 'guest')}: {outcome}"
        )
    unwritten = report.errors.keys() - report.nodes.keys()
    lines += [f"{name}: no row: {report.errors[name]}" for name in sorted(unwritten)]
    if report.listing_error is not None:
        lines.append(f"not all nodes could be listed: {report.listing_error}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
