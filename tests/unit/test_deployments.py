"""etc/ansible and etc/containers name only commands, options, files and directories that exist."""

import configparser
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from nodetracker.bootstrap.options.opts import list_opts
from nodetracker.cmd.command_table import COMMANDS
from tests.documents import read_section

ROOT = Path(__file__).parent.parent.parent
ANSIBLE, CONTAINERS = ROOT / "etc" / "ansible", ROOT / "etc" / "containers"
ROLE = ANSIBLE / "roles" / "nodetracker"
TASKS = yaml.safe_load((ROLE / "tasks" / "main.yaml").read_text())
INVENTORY = yaml.safe_load((ANSIBLE / "inventory.example.yaml").read_text())["all"]
IMAGE = (CONTAINERS / "Containerfile").read_text()
COMPOSE = yaml.safe_load((CONTAINERS / "compose.yaml").read_text())
QUADLET = (CONTAINERS / "nodetracker.container").read_text()
OURS = {name: service for name, service in COMPOSE["services"].items() if name != "database"}
PROGRAMS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
OPTIONS = {group: {opt.dest for opt in opts} for group, opts in list_opts()}
OPTIONS["database"].add("connection")  # an option of oslo.db


def list_steps(tasks):
    for task in tasks:
        yield task
        yield from list_steps(task.get("block", ()))


STEPS = [step for step in list_steps(TASKS) if "block" not in step]
TEMPLATES = [step for step in STEPS if "ansible.builtin.template" in step]


def list_commands():
    """Return the commands of all files, and of the section on containers, as lists of words."""
    for service in OURS.values():
        yield service["command"]
        if "healthcheck" in service:
            yield service["healthcheck"]["test"][1:]
    yield from (yaml.safe_load(text) for text in re.findall(r"CMD (\[.*\])$", IMAGE, re.MULTILINE))
    text = read_section("install.md", "Containers")
    lines = re.findall(r"^(?:Exec|HealthCmd)=(.*)$", QUADLET, re.MULTILINE)
    lines += re.findall(r"(nodetracker-manage [a-z ]+)", text)
    yield from map(shlex.split, lines)
    called = [step.get("ansible.builtin.command", {}).get("argv", ()) for step in STEPS]
    called = [
        words[words.index("nodetracker-manage") :]
        for words in called
        if "nodetracker-manage" in words
    ]
    assert len(called) == 4
    yield from called


@pytest.mark.parametrize("command", [*list_commands()], ids=" ".join)
def test_commands_exist(command):
    program, *words = command
    assert program in {"python3", *PROGRAMS}
    if program == "nodetracker-manage":
        assert any(re.search(rf"(^| ){name}( |$)", " ".join(words)) for name in COMMANDS)


def test_options_exist():
    variables = {
        f"OS_{group}__{name}".upper() for group, names in OPTIONS.items() for name in names
    }
    named = set(re.findall(r"Environment=(\w+)=", QUADLET))
    named |= {name for service in OURS.values() for name in service["environment"]}
    assert len(named) > 10
    assert named - variables == set()
    files = [
        value
        for group in INVENTORY["children"].values()
        for name, value in group.get("vars", {}).items()
        if name.endswith("_options")
    ]
    files.append(TEMPLATES[0]["vars"]["nodetracker_called"])
    assert "join_token_file" in files[-1]["conductor"]
    for group, values in (item for file in files for item in file.items()):
        assert set(values) <= OPTIONS[group]


def test_no_difference_shows_a_secret():
    """A template has the URL of the database, and what a token's command prints is one."""
    secret = [step for step in STEPS if step in TEMPLATES or "nodetracker_token" in str(step)]
    assert len(secret) == 4
    assert all(step.get("no_log") is True for step in secret)


def test_files_and_directories_exist():
    assert all((ROOT / path).exists() for path in re.findall(r"COPY (\S+) ", IMAGE))
    assert "dist" in (ROOT / ".containerignore").read_text().splitlines()
    tmpfiles = (ROOT / "etc" / "tmpfiles.d" / "nodetracker.conf").read_text()
    agents, services = (step["ansible.builtin.template"]["dest"] for step in TEMPLATES)
    named = [services.replace("{{ nodetracker_service }}", name) for name in ("conductor", "api")]
    for path in (agents, *named):
        assert f"d {Path(path).parent} " in tmpfiles


def test_variables_are_those_of_the_role():
    used = {*INVENTORY["vars"]}
    for group in INVENTORY["children"].values():
        used |= {*group.get("vars", {})}
    known = {*yaml.safe_load((ROLE / "defaults" / "main.yaml").read_text())}
    assert used - {"nodetracker_packages", "nodetracker_database"} <= known


def test_the_state_is_a_volume_where_the_options_have_it():
    (state,) = re.findall(r"^VOLUME (.*)$", IMAGE, re.MULTILINE)
    assert state == next(
        opt.default for opt in dict(list_opts())["DEFAULT"] if opt.name == "state_path"
    )
    for name in ("api", "agent"):
        assert f"{name}:{state}" in OURS[name]["volumes"]
    assert f"Volume=nodetracker:{state}\n" in QUADLET


def test_values_of_compose_are_valid():
    for service in OURS.values():
        assert service["cap_drop"] == ["ALL"]
        assert set(service.get("depends_on", ())) <= set(COMPOSE["services"])
        volumes = [v.partition(":")[0] for v in service.get("volumes", ()) if not v.startswith("/")]
        assert set(volumes) <= set(COMPOSE["volumes"])


def test_the_unit_keys_of_the_quadlet_are_those_of_the_service():
    parser = configparser.ConfigParser(strict=False)
    parser.optionxform = str
    parser.read_string(QUADLET)
    unit = (ROOT / "etc" / "systemd" / "nodetracker-standalone.service").read_text()
    for key, value in parser["Service"].items():
        assert f"{key}={value}" in unit
