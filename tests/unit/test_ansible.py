"""etc/ansible names only commands, options, directories and variables that exist."""

import re
from pathlib import Path

import yaml

from nodetracker.bootstrap.options.opts import list_opts
from nodetracker.cmd.command_table import COMMANDS
from tests.documents import read_section

ROOT = Path(__file__).parent.parent.parent
ANSIBLE = ROOT / "etc" / "ansible"
ROLE = ANSIBLE / "roles" / "nodetracker"
TASKS = (ROLE / "tasks" / "main.yaml").read_text()
INVENTORY = yaml.safe_load((ANSIBLE / "inventory.example.yaml").read_text())["all"]
VARIABLES = {*yaml.safe_load((ROLE / "defaults" / "main.yaml").read_text())}
REQUIRED = {"nodetracker_packages", "nodetracker_database"}


def list_steps(tasks):
    for task in tasks:
        yield task
        yield from list_steps(task.get("block", ()))


def test_commands_of_nodetracker_exist():
    called = [
        " ".join(step["ansible.builtin.command"]["argv"][1:])
        for step in list_steps(yaml.safe_load(TASKS))
        if "nodetracker-manage" in step.get("ansible.builtin.command", {}).get("argv", ())
    ]
    assert len(called) == 4
    for words in called:
        assert any(re.search(rf"(^| ){name}( |$)", words) for name in COMMANDS)


def test_options_that_it_writes_exist():
    options = {group: {opt.dest for opt in opts} for group, opts in list_opts()}
    options["database"].add("connection")  # an option of oslo.db
    written = [{"conductor": {"use_local": 0, "endpoint": 0, "join_token_file": 0}}]
    assert "{conductor: {use_local: false, endpoint:" in TASKS
    assert "join_token_file: /etc" in TASKS
    groups = INVENTORY["children"].values()
    written += [
        value
        for group in groups
        for name, value in group.get("vars", {}).items()
        if name.endswith("_options")
    ]
    for file in written:
        for group, values in file.items():
            assert set(values) <= options[group]


def test_no_difference_shows_a_secret():
    """A template has the URL of the database, and what a token's command prints is one."""
    steps = list(list_steps(yaml.safe_load(TASKS)))
    secret = [
        step
        for step in steps
        if "ansible.builtin.template" in step or "nodetracker_token" in yaml.safe_dump(step)
    ]
    assert len([step for step in secret if "block" not in step]) == 4
    assert all(step.get("no_log") is True for step in secret if "block" not in step)


def test_directories_that_it_writes_to_exist():
    tmpfiles = (ROOT / "etc" / "tmpfiles.d" / "nodetracker.conf").read_text()
    for name in ("compute", "conductor", "api"):
        assert f"d /etc/nodetracker/nodetracker-{name}.conf.d " in tmpfiles
    written = [
        step["ansible.builtin.template"]["dest"]
        for step in list_steps(yaml.safe_load(TASKS))
        if "ansible.builtin.template" in step
    ]
    assert written == [
        f"/etc/nodetracker/nodetracker-{name}.conf.d/ansible.conf"
        for name in ("compute", "{{ nodetracker_service }}")
    ]


def test_variables_are_those_of_the_role():
    used = {*INVENTORY["vars"]}
    for group in INVENTORY["children"].values():
        used |= {*group.get("vars", {})}
    assert used - REQUIRED <= VARIABLES
    page = read_section("install.md", "Ansible")
    documented = {*re.findall(r"`(nodetracker_\w+)`", page)}
    assert documented == (VARIABLES | REQUIRED) - {"nodetracker_service"}


def test_plays_are_of_the_services_in_the_order_of_an_upgrade():
    plays = yaml.safe_load((ANSIBLE / "site.yaml").read_text())
    services = [play["roles"][0]["nodetracker_service"] for play in plays]
    assert services == ["conductor", "compute", "api"]
    assert [play["hosts"] for play in plays] == [f"nodetracker_{name}" for name in services]
    assert {*INVENTORY["children"]} == {f"nodetracker_{name}" for name in services}
