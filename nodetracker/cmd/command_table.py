"""The commands of nodetracker-manage: one table, and what finds and lists them."""

import difflib
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint
from typing import Any, NamedTuple

from cliff.commandmanager import CommandManager

from nodetracker.cmd.screen.streams import render_error

PROGRAM = "nodetracker-manage"
NAMESPACE = "nodetracker.cmd.commands"
"""The package of the commands, and cliff's namespace of them."""


class Entry(NamedTuple):
    """A command in the table.

    Attributes:
        place: module below `NAMESPACE`, and class; it is imported when the command is run.
        summary: its line in the list of commands, and the first sentence of its help.
        is_logged: whether it changes something and is logged with who ran it.
    """

    place: str
    summary: str
    is_logged: bool = False


# fmt: off
# ruff: noqa: E501 - a command has one line
COMMANDS: dict[str, Entry] = {
    "admission install": Entry("admission:InstallAdmission", "Let an engine of this machine ask the agent before a guest starts", True),
    "admission list": Entry("admission:ListAdmissions", "List what this machine's engines asked the agent, and its answers, the newest last"),
    "admission remove": Entry("admission:RemoveAdmission", "Let an engine of this machine ask nothing more, and remove what was installed", True),
    "admission show": Entry("admission:ShowAdmission", "Show what is installed at this machine's engines, and whether the agent answers"),
    "agent list": Entry("agent:ListAgents", "List the hosts that have joined the conductors, with the last use of each credential"),
    "agent revoke": Entry("agent:RevokeAgent", "Revoke the credential of a host: its agent writes nothing more, and its guests run on", True),
    "agent rotate": Entry("agent:RotateAgent", "Replace the credential of this host by a new one; run it as the agent's user or root", True),
    "agent token create": Entry("agent:CreateToken", "Create a token by which agents without a database join the conductors", True),
    "candidate list": Entry("claim:ListCandidates", "List the nodes that fit an instance with these resources, best first"),
    "claim abort": Entry("claim:AbortClaim", "Release claims; one that is released already is not changed", True),
    "claim confirm": Entry("claim:ConfirmClaim", "Confirm a claim: its guest exists", True),
    "claim create": Entry("claim:CreateClaim", "Claim a workload's resources on a node, or show why the claim is refused", True),
    "claim list": Entry("claim:ListClaims", "List active claims, oldest first"),
    "claim renew": Entry("claim:RenewClaim", "Renew a held claim: it expires [compute] claim_timeout seconds from now", True),
    "claim show": Entry("claim:ShowClaim", "Show one claim"),
    "completion bash": Entry("help:CompleteInBash", "Print the script with which bash completes commands, options, hosts and nodes"),
    "completion fish": Entry("help:CompleteInFish", "Print the script with which fish completes commands, options, hosts and nodes"),
    "completion words": Entry("help:CompleteWords", "Print what the last word of a command line may be, a line for each"),
    "completion zsh": Entry("help:CompleteInZsh", "Print the script with which zsh completes commands, options, hosts and nodes"),
    "config check": Entry("config:CheckConfig", "Check the configuration: files, option names, values and what they name"),
    "config sample": Entry("config:ShowSample", "Print a sample configuration file with all options"),
    "db check": Entry("db:CheckSchema", "Compare the database's schema with the one that this version expects"),
    "db contract": Entry("db:ContractSchema", "Remove what only earlier versions need of the database's schema", True),
    "db purge": Entry("db:PurgeRows", "Delete history, trends, resolved warnings, ended migrations and released claims by age", True),
    "db reconcile": Entry("db:ReconcileClaims", "List claims whose guest or node is gone, and guests without a claim", True),
    "db sync": Entry("db:SyncSchema", "Migrate the database's schema to this version, or to a given revision", True),
    "db version": Entry("db:ShowSchemaVersion", "Print the revision of the database's schema"),
    "events": Entry("history:ListEvents", "Show what happened to nodes, claims, moves, services and warnings, the newest last"),
    "fleet tolerance": Entry("tolerance:ShowTolerance", "Show which losses of a host, or of two, the fleet survives: whether their guests would fit"),
    "health": Entry("machine:ShowHealth", "Show the health of this machine's agent or REST service; exit with 1 if it fails"),
    "help": Entry("help:ShowHelp", "Show the help of a command, as --help after it does"),
    "host action": Entry("service:ActOnHost", "Reboot, shut down or start up a host through its driver", True),
    "host capture": Entry("machine:CaptureHost", "Write the files that the agent reads on this machine to a tar archive for a bug report"),
    "host in": Entry("service:TakeIn", "Put hosts back into use: enabled, and no longer in maintenance", True),
    "host list": Entry("service:ListHosts", "List hosts with their service, zone, state, fullness and guests"),
    "host out": Entry("service:TakeOut", "Take hosts out of use: disabled and in maintenance, at once", True),
    "host plan": Entry("plan:PlanHosts", "Show where the guests of hosts would fit elsewhere, all together, and what would not"),
    "host purge": Entry("service:PurgeHost", "Delete all nodes of a host that is down, with the claims on them, after a question", True),
    "host rename": Entry("service:RenameHost", "Move the rows of a host whose agent does not run to the host's new name", True),
    "host set": Entry("service:SetHost", "Enable or disable a host for scheduling, set its maintenance mode, or keep it spare", True),
    "host show": Entry("service:ShowHost", "Show a host's resources and their usage, in total and by project"),
    "host takeover": Entry("service:TakeOverNode", "Give a node of a host that is down to the host whose agent lists it and was refused", True),
    "migration confirm": Entry("migration:ConfirmMigration", "End a migration at its destination: the source's claim is released", True),
    "migration create": Entry("migration:CreateMigration", "Claim a move's destination in addition to its source, or show why it is refused", True),
    "migration list": Entry("migration:ListMigrations", "List migrations, oldest first"),
    "migration revert": Entry("migration:RevertMigration", "End a migration at its source: the destination's claim is released", True),
    "migration set": Entry("migration:SetMigration", "Set the status of an open migration; its claims are not changed", True),
    "migration show": Entry("migration:ShowMigration", "Show one migration"),
    "node accept": Entry("node:AcceptNode", "Accept the capacity of a node that jumped; its host's next audit opens a held node", True),
    "node audit": Entry("node:AuditNode", "Request an audit from a host's agent, and show the outcome for each node"),
    "node delete": Entry("node:DeleteNode", "Delete the row of a node whose host is down; a live agent would create it again", True),
    "node describe": Entry("node_details:DescribeNode", "Describe one node: its state, machine, amounts, workloads, devices and problems"),
    "node diff": Entry("node_details:DiffNode", "Compare a node's usage by its row, by its claims and by its guests"),
    "node history": Entry("history:NodeHistory", "Show what changed on a host's nodes, a line for each thing, the newest last"),
    "node list": Entry("node:ListNodes", "List nodes with their resources, usage and the age of the last reading"),
    "node show": Entry("node:ShowNode", "Show every column of one node's row"),
    "node stats": Entry("node:NodeStats", "Sum all nodes whose service is enabled"),
    "overview": Entry("overview:ShowOverview", "Show the fleet on one screen: totals, and a line for each node, the worst first"),
    "placement adopt": Entry("placement:AdoptProvider", "Give a node the uuid of the provider that has its name, so that it is reported to", True),
    "placement audit": Entry("placement:AuditPlacement", "Compare placement with the ledger; exit with 1 when anything differs. Writes nothing"),
    "placement heal": Entry("placement:HealPlacement", "Make placement agree with the ledger now: nodes, leaked consumers, deleted nodes", True),
    "placement remove": Entry("placement:RemovePlacement", "Remove the provider of a node whose agent no longer reports to placement", True),
    "placement show": Entry("placement:ShowPlacement", "Show what placement has of a node, and whose its consumers are"),
    "service delete": Entry("service:DeleteService", "Delete a service that is not alive, with its nodes, warnings and queues in the broker", True),
    "service list": Entry("service:ListServices", "List services: status is set by the administrator, state is liveness"),
    "service set": Entry("service:SetService", "Enable or disable a service, or force it down", True),
    "service show": Entry("service:ShowService", "Show one service with its identity and the state of its audits"),
    "trends": Entry("history:ListTrends", "List what the fleet or a node had, allocated and used, by the hour or day, newest last"),
    "user delete": Entry("user:DeleteUser", "Delete a user of the REST API", True),
    "user list": Entry("user:ListUsers", "List the users of the REST API with auth_strategy http_basic"),
    "user set": Entry("user:SetUser", "Create a user of the REST API, or change its password", True),
    "warning list": Entry("warning:ListWarnings", "List active warnings; they resolve when their cause ends. Silenced ones are left out"),
    "warning silence": Entry("warning:SilenceWarning", "Leave a warning out of health and counts, until a time or until it is resolved", True),
    "workload list": Entry("workload:ListWorkloads", "List workloads: those with an active claim, and unclaimed guests"),
    "workload show": Entry("workload:ShowWorkload", "Show a workload, and each node where it is with its claim, amounts, pins and devices"),
}
# fmt: on


class CommandTable(CommandManager):
    """cliff's manager of the commands in the table."""

    def load_commands(self, namespace: str) -> None:
        """Take the table; cliff would read the metadata of all installed packages."""
        for name, entry in COMMANDS.items():
            self.commands[name] = EntryPoint(name, f"{namespace}.{entry.place}", namespace)

    def add_command(self, name: str, command_class: Any) -> None:
        """Add none: cliff's application brings a ``help`` and a ``complete`` of its own."""

    def find_command(self, argv: list[str]) -> tuple[Any, str, list[str]]:
        """Return the class, the name and the arguments of a command; words may be cut short.

        Raises:
            ValueError: there is no such command; the text names the nearest, or those of its noun.
        """
        try:
            command, _, arguments = super().find_command(argv)
        except ValueError:
            raise ValueError(_render_unknown(argv)) from None
        return command, name_of(command), arguments


def name_of(command: type) -> str:
    """Return the name of a command's class."""
    place = f"{command.__module__}:{command.__name__}".removeprefix(f"{NAMESPACE}.")
    return next(name for name, entry in COMMANDS.items() if entry.place == place)


def list_commands(names: Iterable[str] = COMMANDS) -> str:
    """Return the lines of commands with their summaries, by default of all."""
    names = sorted(names)
    width = max(map(len, names))
    return "".join(f"  {name:<{width}}  {COMMANDS[name].summary}\n" for name in names)


def select_noun(words: Sequence[str]) -> list[str]:
    """Return the commands of a noun if it is all that was typed, [] otherwise."""
    return [name for name in COMMANDS if len(words) == 1 and name.startswith(f"{words[0]} ")]


def find_nearest(words: Sequence[str]) -> str | None:
    """Return the command or noun that was probably meant, None if none is similar.

    >>> find_nearest(["node", "lst", "--long"]), find_nearest(["nde"])
    ('node list', 'node')
    """
    typed = [word for word in words if not word.startswith("-")]
    known = [*COMMANDS, *dict.fromkeys(name.partition(" ")[0] for name in COMMANDS)]
    for count in (2, 1):
        text = " ".join(typed[:count])
        if found := difflib.get_close_matches(text, known, 1):
            return found[0]
    return None


def _render_unknown(words: Sequence[str]) -> str:
    if of_noun := select_noun(words):
        return f"{PROGRAM} {words[0]} has the commands\n{list_commands(of_noun)}"
    nearest = find_nearest(words)
    hint = f"see {PROGRAM} --help" if nearest is None else f"did you mean {nearest!r}?"
    return render_error(f"{PROGRAM}: unknown command {' '.join(words)!r}: {hint}") + "\n"
