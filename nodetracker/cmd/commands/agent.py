"""agent list, revoke, rotate, token create: the credentials by which agents call conductors."""

import argparse
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from nodetracker.cmd.commands.base import (
    ListCommand,
    ShowCommand,
    StoreCommand,
    argument,
    parse_limit,
)
from nodetracker.cmd.commands.service import read_operator
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.model.credential import hash_secret, make_secret
from nodetracker.model.errors import ConfigError
from nodetracker.model.serializer import pick
from nodetracker.model.text import count_noun, render_time, render_value

if TYPE_CHECKING:
    from nodetracker.db.store import SqlStore

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_MAX_LIFETIME = timedelta(days=365)


def parse_lifetime(text: str) -> timedelta:
    """Parse a duration such as ``90m``, ``24h`` or ``7d``.

    Raises:
        ArgumentTypeError: the text has another format, or is longer than a year.
    """
    unit = _UNITS.get(text[-1:])
    if unit is not None and text[:-1].isdecimal() and len(text) < 10:
        lifetime = timedelta(**{unit: int(text[:-1])})
        if timedelta() < lifetime <= _MAX_LIFETIME:
            return lifetime
    raise argparse.ArgumentTypeError(
        f"invalid value {render_value(text)}: expected a duration such as 90m, 24h or 7d, of at "
        "most 365d"
    )


class CredentialCommand(StoreCommand):
    """Mixin of commands that use the credentials in the database."""

    @property
    def credentials(self) -> "SqlStore":
        """The database.

        Raises:
            ConfigError: it is not configured here.
        """
        store: SqlStore = self.app.open_sql_store()
        return store


class CreateToken(CredentialCommand, ShowCommand):
    details = """
    It is printed once, and alone unless a format or columns are asked for. Without --host it
    joins only names that no other agent has; a machine that was reinstalled or replaces
    another needs --host.
    """
    example = "agent token create --host compute-7"
    columns = ("token", "host", "uses", "expires_at")
    arguments = (
        argument("--host", help="The only host that it joins."),
        argument(
            "--uses", type=parse_limit, default=1, metavar="N", help="How often. Default: once."
        ),
        argument(
            "--expires",
            type=parse_lifetime,
            default=timedelta(hours=24),
            metavar="AGE",
            help="For how long, such as 90m, 24h or 7d. Default: 24h.",
        ),
    )

    formatter_default = "value"

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        """Store the token's hash, and return the token."""
        if args.formatter == self.formatter_default:
            args.columns = args.columns or ["token"]
        self.check_columns(args, self.columns)
        secret = make_secret()
        token = self.credentials.create_join_token(
            hash_secret(secret), args.host, args.uses, args.expires, read_operator()
        )
        whom = f"host {token.host}" if token.host else "hosts that have no credential"
        uses = count_noun(token.uses, "time")
        self.app.stderr.write(
            f"joins {whom}, {uses}, until {render_time(token.expires_at)}; it is not shown again\n"
        )
        return {"token": secret} | pick(token, *self.columns[1:])


class ListAgents(CredentialCommand, ListCommand):
    example = "agent list"
    columns = ("host", "state", "issued_at", "used_at", "address", "agent_id")
    layout = (
        Column("host", ("host",), Kind.NAME),
        Column("state", ("state",)),
        Column("issued", ("issued_at",), Kind.MOMENT, 2),
        Column("last used", ("used_at",), Kind.MOMENT, 1),
        Column("address", ("address",), Kind.FLEXIBLE, 3),
    )

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        return [
            {
                "host": found.host,
                "state": "valid" if found.revoked_at is None else "revoked",
                **pick(found, "issued_at", "used_at", "address", "agent_id"),
            }
            for found in self.credentials.list_credentials()
        ]


class RevokeAgent(CredentialCommand):
    details = "The host is down at once. It joins again by a token for it."
    example = "agent revoke compute-7"
    arguments = (argument("host", help="As agent list shows it."),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Revoke it."""
        revoked = self.credentials.revoke_credential(parsed_args.host)
        self.app.stdout.write(f"credential of host {revoked.host} revoked\n")


class RotateAgent(StoreCommand):
    details = "An agent does so by itself every 30 days. Both are valid until the new one is used."
    example = "agent rotate"

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Ask a conductor for it."""
        from nodetracker.bootstrap.conductor_client import build_http_caller

        if self.app.conf.conductor.use_local:
            raise ConfigError(
                "[conductor] use_local: is true: this host uses its database and has no credential"
            )
        caller = build_http_caller(self.app.conf)
        caller.renew(30.0)
        self.app.stdout.write("the credential of this host was replaced\n")
