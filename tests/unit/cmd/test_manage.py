import logging
from collections.abc import Iterator

import cliff.command
import pytest

from nodetracker.cmd import manage

COMMANDS = sorted(manage.COMMANDS)


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    """Remove the handler that the program adds to the root logger, on this test's stderr."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
    root.setLevel(level)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_after_a_command_is_the_command_s(name, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [manage.PROGRAM])
    assert manage.main([*name.split(), "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: {manage.PROGRAM} {name} ")


def test_help_without_a_command_lists_all_commands(capsys):
    with pytest.raises(SystemExit) as caught:
        manage.main(["--help"])
    assert not caught.value.code
    output = capsys.readouterr().out
    assert [name for name in COMMANDS if f"  {name}  " not in output] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_reads_the_metadata_of_all_packages(name, monkeypatch):
    monkeypatch.setattr(cliff.command, "_dists_by_mods", None)
    monkeypatch.setattr(cliff.command, "packages_distributions", lambda: pytest.fail("is read"))
    app = manage.ManageApp()
    command, _, _ = app.command_manager.find_command(name.split())
    command(app, None).get_parser(name)
