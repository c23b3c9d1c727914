"""The host that placement audit and heal are limited to."""

import argparse
from types import SimpleNamespace

import pytest

from nodetracker.cmd.commands.placement import AuditPlacement, HealPlacement
from nodetracker.model.errors import NotFoundError
from tests.builders import make_incarnation, take_service
from tests.stores import SqliteStore


@pytest.mark.parametrize("command", [AuditPlacement, HealPlacement])
def test_a_host_that_does_not_exist_is_not_one_without_differences(command):
    store = SqliteStore()
    take_service(store, "alpha", make_incarnation())
    found = command(SimpleNamespace(store=store, reader=store, build_option_parser=None), None)
    found._rows = []
    with pytest.raises(NotFoundError, match="^no such host: gamma$"):
        found.take_action(argparse.Namespace(host="gamma", dry_run=True))
    assert list(found.list_records("alpha")) == []  # its agent has not stored a node yet
