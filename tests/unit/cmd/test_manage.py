import gc
import importlib.metadata
import shlex
import subprocess
import sys

import cliff.command
import pytest
import stevedore._cache
from oslo_config import cfg

from nodetracker.cmd import manage

COMMANDS = sorted(manage.COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_after_a_command_is_the_command_s(name, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [manage.PROGRAM])
    assert manage.main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: {manage.PROGRAM} {name} ")
    summary = manage.COMMANDS[name].summary
    assert f"{''.join(summary.split())}." in "".join(shown.split())


def test_help_without_a_command_lists_all_commands(capsys):
    with pytest.raises(SystemExit) as caught:
        manage.main(["--help"])
    assert not caught.value.code
    output = capsys.readouterr().out
    assert [name for name in COMMANDS if f"  {name}  " not in output] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_reads_the_metadata_of_all_packages(name, monkeypatch):
    for module, function in (
        (cliff.command, "packages_distributions"),
        (importlib.metadata, "entry_points"),
    ):
        monkeypatch.setattr(module, function, lambda **_: pytest.fail("is read"))
    monkeypatch.setattr(cliff.command, "_dists_by_mods", None)
    monkeypatch.setattr(stevedore._cache, "_c", stevedore._cache.Cache("/nonexistent"))
    app = manage.ManageApp()
    ran = []
    command, _, _ = app.command_manager.find_command(name.split())
    monkeypatch.setattr(command, "run", lambda *given: ran.append(given) or 0)
    words = shlex.split(command.example.partition(" > ")[0])
    assert manage.main(words) == 0
    assert ran


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_it_accepts(name):
    app = manage.ManageApp()
    factory, _, _ = app.command_manager.find_command(name.split())
    words = shlex.split(factory.example.partition(" > ")[0])
    assert " ".join(words[: len(name.split())]) == name
    app.build_parser(name.split()).parse_args(words[len(name.split()) :])


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["node", "lst"], ["unknown command 'node lst': did you mean 'node list'?"]),
        (["frobnicate"], ["unknown command 'frobnicate': see nodetracker-manage --help"]),
        (
            ["node", "show"],
            [
                "the following arguments are required: host (see nodetracker-manage node show --help)"
            ],
        ),
        ([], ["a command is required (see nodetracker-manage --help)"]),
        (
            ["--no-such-option", "node", "list"],
            ["unrecognized arguments: --no-such-option (see nodetracker-manage --help)"],
        ),
    ],
)
def test_a_usage_error_is_one_line_with_what_to_do(arguments, lines, capsys):
    try:
        code = manage.main(arguments)
    except SystemExit as error:
        code = error.code
    assert code == 2
    shown = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in shown] == lines


def test_a_noun_lists_its_commands(capsys):
    assert manage.main(["node"]) == 2
    lines = capsys.readouterr().err.splitlines()[1:]
    assert lines[0].split()[:3] == ["node", "accept", "Accept"]
    assert len(lines) == len([name for name in COMMANDS if name.startswith("node ")])


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], ("nodetracker.cmd.commands.node", "nodetracker.model.node")),
        (
            ["node", "list", "--help"],
            ("nodetracker.db", "nodetracker.ports", "nodetracker.bootstrap"),
        ),
    ],
)
def test_help_imports_nothing_that_it_does_not_need(arguments, unwanted):
    code = (
        "import sys; from nodetracker.cmd import manage\n"
        f"try: manage.main({arguments})\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = done.stderr.split()
    assert "cliff.app" in imported
    unwanted = ("sqlalchemy", "oslo_config", "oslo_log", "rich", "yaml", *unwanted)
    assert [name for name in unwanted if name in imported] == []


def test_a_command_whose_words_are_cut_short_is_logged_by_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cfg, "CONF", cfg.ConfigOpts())
    config, log = tmp_path / "nodetracker.conf", tmp_path / "changes.log"
    users = tmp_path / "htpasswd"
    users.touch()
    config.write_text(f"[api]\nhttp_basic_auth_user_file={users}\n[audit]\nlog_file={log}\n")
    assert manage.main([f"--config-file={config}", "us", "del", "eve"]) == 1
    assert capsys.readouterr().err == "no such user: eve\n"
    assert "command user delete, target eve" in log.read_text()


def test_collections_do_not_traverse_the_libraries_of_a_command(tmp_path):
    config = tmp_path / "nodetracker.conf"
    config.write_text(f"[database]\nconnection = sqlite:///{tmp_path}/none.sqlite\n")
    assert manage.main([f"--config-file={config}", "node", "list"]) == 1
    assert gc.get_freeze_count() > 5000


def test_no_garbage_is_collected_while_a_command_imports_its_libraries(tmp_path):
    config = tmp_path / "nodetracker.conf"
    config.write_text(f"[database]\nconnection = sqlite:///{tmp_path}/none.sqlite\n")
    code = (
        "import gc; from nodetracker.cmd import manage; seen = [];"
        "gc.callbacks.append(lambda *found: seen.append(found));"
        f"manage.main(['--config-file={config}', 'node', 'list']); print(len(seen))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


@pytest.mark.parametrize("arguments", [["--help"], ["nodes"], ["node", "list", "--bogus"]])
def test_closed_outputs_are_no_error(arguments, monkeypatch):
    """As with ``>&-`` in a shell, of which Python makes None."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    try:
        code = manage.main(arguments)
    except SystemExit as end:
        code = end.code or 0
    assert code == (0 if arguments == ["--help"] else 2)


@pytest.mark.parametrize(
    "words",
    [
        ["node", "list", "--host", "compute-1", "--long", "--help"],
        ["node", "show", "compute-1", "node-1", "--help"],
        ["node", "list", "--help", "-f", "json"],
        ["node", "list", "--no-such-option", "-h"],
        ["claim", "create", "-", "--help"],
    ],
    ids=" ".join,
)
def test_help_after_any_arguments_is_the_command_s(capsys, words):
    assert manage.main(words) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"usage: nodetracker-manage {' '.join(words[:2])} ")
    assert err == ""
