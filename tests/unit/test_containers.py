"""etc/containers and docs/install.md name only what exists."""

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
CONTAINERS = ROOT / "etc" / "containers"
IMAGE = (CONTAINERS / "Containerfile").read_text()
COMPOSE = yaml.safe_load((CONTAINERS / "compose.yaml").read_text())
QUADLET = (CONTAINERS / "nodetracker.container").read_text()
PAGE = read_section("install.md", "Containers")
OURS = {name: service for name, service in COMPOSE["services"].items() if name != "database"}
PROGRAMS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


def read_lines(path):
    return path.read_text().splitlines()


def list_variables():
    """Return the environment variables that set an option."""
    named = {f"OS_{group}__{opt.dest}".upper() for group, opts in list_opts() for opt in opts}
    return named | {"OS_DATABASE__CONNECTION"}  # an option of oslo.db


def list_commands():
    """Return the commands of all three, as lists of words."""
    yield from (service["command"] for service in OURS.values())
    yield from (
        service["healthcheck"]["test"][1:] for service in OURS.values() if "healthcheck" in service
    )
    yield from (yaml.safe_load(text) for text in re.findall(r"CMD (\[.*\])$", IMAGE, re.MULTILINE))
    yield from (
        shlex.split(text)
        for text in re.findall(r"^(?:Exec|HealthCmd)=(.*)$", QUADLET, re.MULTILINE)
    )
    yield from (shlex.split(text) for text in re.findall(r"(nodetracker-manage [a-z ]+)", PAGE))


def test_environment_variables_are_options():
    variables = set(re.findall(r"Environment=(\w+)=", QUADLET))
    for service in OURS.values():
        variables |= set(service["environment"])
    assert len(variables) > 10
    assert variables - list_variables() == set()


@pytest.mark.parametrize("command", [*list_commands()], ids=" ".join)
def test_commands_exist(command):
    program, *words = command
    assert program in {"python3", *PROGRAMS}
    if program == "nodetracker-manage":
        assert any(" ".join(words).startswith(name) for name in COMMANDS)


def test_files_that_are_copied_exist():
    assert all((ROOT / path).exists() for path in re.findall(r"COPY (\S+) ", IMAGE))
    assert "/opt/nodetracker/bin:" in IMAGE
    assert any(
        "opt/nodetracker/bin" in line
        for line in read_lines(ROOT / "debian" / "nodetracker-common.links")
    )


def test_packages_that_were_built_before_are_not_taken():
    assert "dist" in read_lines(ROOT / ".containerignore")
    assert "/tools/bin/tox -q run -e dist\n" in IMAGE


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
