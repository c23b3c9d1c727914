"""The table of the commands of nodetracker-manage, and what help says of them.

Summaries are read from the source of commands, because to import all of them takes
longer than a person wants to wait for help.
"""

import ast
import difflib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

COMMANDS: dict[str, str] = {
    "agent list": "agent:ListAgents",
    "agent revoke": "agent:RevokeAgent",
    "agent rotate": "agent:RotateAgent",
    "agent token create": "agent:CreateToken",
    "candidate list": "claim:ListCandidates",
    "claim abort": "claim:AbortClaim",
    "claim confirm": "claim:ConfirmClaim",
    "claim create": "claim:CreateClaim",
    "claim list": "claim:ListClaims",
    "claim renew": "claim:RenewClaim",
    "claim show": "claim:ShowClaim",
    "completion bash": "help:CompleteInBash",
    "completion fish": "help:CompleteInFish",
    "completion words": "help:CompleteWords",
    "completion zsh": "help:CompleteInZsh",
    "config check": "config:CheckConfig",
    "config sample": "config:ShowSample",
    "db check": "db:CheckSchema",
    "db contract": "db:ContractSchema",
    "db purge": "db:PurgeRows",
    "db reconcile": "db:ReconcileClaims",
    "db sync": "db:SyncSchema",
    "db version": "db:ShowSchemaVersion",
    "health": "machine:ShowHealth",
    "events": "events:ListEvents",
    "help": "help:ShowHelp",
    "host action": "service:ActOnHost",
    "host capture": "machine:CaptureHost",
    "host list": "service:ListHosts",
    "host purge": "service:PurgeHost",
    "host rename": "service:RenameHost",
    "host set": "service:SetHost",
    "host show": "service:ShowHost",
    "host takeover": "service:TakeOverNode",
    "migration confirm": "migration:ConfirmMigration",
    "migration create": "migration:CreateMigration",
    "migration list": "migration:ListMigrations",
    "migration revert": "migration:RevertMigration",
    "migration set": "migration:SetMigration",
    "migration show": "migration:ShowMigration",
    "node accept": "node:AcceptNode",
    "node audit": "node:AuditNode",
    "node delete": "node:DeleteNode",
    "node describe": "node_details:DescribeNode",
    "node history": "node_details:NodeHistory",
    "node list": "node:ListNodes",
    "node show": "node:ShowNode",
    "node stats": "node:NodeStats",
    "node diff": "node_details:DiffNode",
    "overview": "overview:ShowOverview",
    "placement adopt": "placement:AdoptProvider",
    "placement audit": "placement:AuditPlacement",
    "placement heal": "placement:HealPlacement",
    "placement remove": "placement:RemovePlacement",
    "placement show": "placement:ShowPlacement",
    "service delete": "service:DeleteService",
    "service list": "service:ListServices",
    "service set": "service:SetService",
    "service show": "service:ShowService",
    "trends": "trends:ListTrends",
    "user delete": "user:DeleteUser",
    "user list": "user:ListUsers",
    "user set": "user:SetUser",
    "warning list": "warning:ListWarnings",
    "warning silence": "warning:SilenceWarning",
    "workload list": "workload:ListWorkloads",
    "workload show": "workload:ShowWorkload",
}
"""Name -> module and class of each command; a command is imported when it is run."""

CHANGES = frozenset(
    {
        "agent revoke", "agent rotate", "agent token create", "claim abort", "claim confirm",
        "claim create", "claim renew", "db contract", "db purge", "db reconcile", "db sync",
        "host action", "host purge", "host rename", "host set", "host takeover",
        "migration confirm", "migration create", "migration revert", "migration set",
        "node accept", "node delete", "placement adopt", "placement heal", "placement remove",
        "service delete", "service set", "user delete", "user set", "warning silence",
    }
)  # fmt: skip
"""Commands that are logged with who ran them."""

_COMMANDS = Path(__file__).parent / "commands"
_SIMILARITY = 0.6


def read_summary(place: str) -> str:
    """Return the first line of a command's docstring, without its full stop.

    Args:
        place: module and class, as ``node:ListNodes``.
    """
    module, _, name = place.partition(":")
    return _read_summaries(module)[name]


def list_commands(commands: Mapping[str, str]) -> str:
    """Return the lines of commands with their summaries.

    Args:
        commands: name -> module and class.
    """
    width = max(map(len, commands))
    return "".join(
        f"  {name:<{width}}  {read_summary(place)}\n" for name, place in sorted(commands.items())
    )


def select_noun(words: Sequence[str], commands: Mapping[str, str]) -> dict[str, str]:
    """Return the commands of a noun if it is all that was typed, {} otherwise."""
    if len(words) != 1:
        return {}
    return {name: place for name, place in commands.items() if name.startswith(f"{words[0]} ")}


def find_nearest(words: Sequence[str], names: Iterable[str]) -> str | None:
    """Return the command or noun that was probably meant, None if none is similar.

    >>> names = ["node list", "node show", "host list"]
    >>> find_nearest(["node", "lst", "--long"], names), find_nearest(["nde"], names)
    ('node list', 'node')
    """
    typed = [word for word in words if not word.startswith("-")]
    commands = list(names)
    known = [*commands, *dict.fromkeys(name.partition(" ")[0] for name in commands)]
    for count in (2, 1):
        text = " ".join(typed[:count])
        if found := difflib.get_close_matches(text, known, 1, _SIMILARITY):
            return found[0]
    return None


@cache
def _read_summaries(module: str) -> dict[str, str]:
    tree = ast.parse((_COMMANDS / f"{module}.py").read_text("utf-8"))
    return {
        node.name: (ast.get_docstring(node) or "").partition("\n")[0].rstrip(".")
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
