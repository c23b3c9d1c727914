"""Commands that compare the ledger with placement: show, audit, heal, adopt and remove."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nodetracker.accounting.placement.comparison import (
    draw_consumer,
    draw_provider,
    render_consumers,
    render_provider,
)
from nodetracker.bootstrap.clients import build_placement_healer
from nodetracker.cmd.commands.base import (
    NODE,
    ListCommand,
    ShowCommand,
    StoreCommand,
    argument,
    flag,
)
from nodetracker.cmd.commands.formats import Lines
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.model.serializer import pick
from nodetracker.process.daemon import EXIT_FAILED
from nodetracker.usecases.reads import find_node, read_consistently

if TYPE_CHECKING:
    from nodetracker.usecases.healing import PlacementHealer


class PlacementCommand(StoreCommand):
    """Mixin of commands that query placement, with the credentials of ``[placement]``."""

    @cached_property
    def healer(self) -> "PlacementHealer":
        """Compares and heals.

        Raises:
            ConfigError: ``[placement]`` does not say how to authenticate.
        """
        return build_placement_healer(self.app.conf, self.app.store)


_LAYOUT = (  # of both
    Column("host", ("host",), Kind.NAME),
    Column("node", ("nodename",), Kind.NAME, 1, same_as="host"),
    Column("provider", ("provider",), Kind.TEXT, 2),
    Column("what", ("what",), Kind.FLEXIBLE, least=20),
)


class ShowPlacement(PlacementCommand, ShowCommand):
    example = "placement show compute-1"
    arguments = NODE

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        record = read_consistently(self.store, find_node(self.store, args.host, args.nodename))
        placed, wanted = self.healer.read(record.uuid), self.healer.describe(record)
        holder = self.healer.find_name_holder(record)
        providers = [render_provider(placed, uuid) for uuid in sorted(placed.providers)]
        consumers = render_consumers(placed, wanted)
        return {
            **pick(record, "host", "nodename", "uuid"),
            "name_held_by": None if holder is None else holder.uuid,
            "providers": Lines(providers, [line for p in providers for line in draw_provider(p)]),
            "consumers": Lines(consumers, map(draw_consumer, consumers)),
        }


class AuditPlacement(PlacementCommand, ListCommand):
    example = "placement audit --host compute-1"

    columns = ("host", "nodename", "provider", "what", "expected", "found")
    layout = (
        *_LAYOUT,
        Column("expected", ("expected",), Kind.FLEXIBLE, least=12),
        Column("found", ("found",), Kind.FLEXIBLE, least=12),
    )
    arguments = (argument("--host", help="Only the nodes of this host."),)

    def list_rows(self, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
        for found in self.healer.audit(args.host):
            self.exit_code = EXIT_FAILED
            yield asdict(found)


class HealPlacement(PlacementCommand, ListCommand):
    details = """
    An empty provider of another uuid that has a node's name is deleted, unless it is Nova's.
    """
    example = "placement heal --dry-run"

    columns = ("host", "nodename", "provider", "what", "result")
    layout = (*_LAYOUT, Column("result", ("result",), Kind.FLEXIBLE))
    arguments = (
        argument("--host", help="Only the nodes of this host."),
        flag("--dry-run", "Write nothing."),
    )

    def list_rows(self, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
        for healed in self.healer.heal(args.host, args.dry_run):
            if healed.is_left:
                self.exit_code = EXIT_FAILED
            yield asdict(healed)


class AdoptProvider(PlacementCommand, ListCommand):
    example = "placement adopt compute-1 --dry-run"
    columns = ("host", "nodename", "before", "uuid")
    arguments = (
        *NODE,
        flag("--force", "Adopt a provider of Nova's too."),
        flag("--dry-run", "Write nothing."),
    )

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, str]]:
        record = find_node(self.store, args.host, args.nodename)
        adopted = self.healer.adopt(record, args.force, args.dry_run)
        return [pick(record, "host", "nodename", "before=uuid") | {"uuid": adopted}]


class RemovePlacement(PlacementCommand, ListCommand):
    details = "An agent that still reports creates it again."
    example = "placement remove compute-1"
    columns = ("host", "nodename", "provider")
    arguments = NODE

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, str]]:
        record = find_node(self.store, args.host, args.nodename)
        self.healer.remove(record)
        return [pick(record, "host", "nodename", "provider=uuid")]
