"""How an agent starts with and without placement."""

import subprocess
import sys
import uuid

import pytest

from tests.programs import Programs, wait_until

LIBRARIES = ("keystoneauth1", "nodetracker.placement")


@pytest.fixture
def programs(tmp_path):
    programs = Programs(tmp_path / "agent")
    programs.make_schema()
    programs.inventory.write_text(
        "nodes:\n  - {nodename: n1, vcpus: 4, memory_mb: 4096, disk_gb: 40}\n"
    )
    return programs


def test_without_placement_nothing_of_it_is_imported(programs) -> None:
    code = (
        "import sys\n"
        "from oslo_config import cfg\n"
        "from nodetracker.bootstrap.agent import build_agent\n"
        "from nodetracker.cmd.configuration import load_configuration\n"
        f"load_configuration(cfg.CONF, ['--config-file={programs.path}'], 'nodetracker-compute')\n"
        "build_agent(cfg.CONF)\n"
        f"print([name for name in {LIBRARIES} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("", "[placement] auth_type: is not set"),
        ("auth_type = sorcery\n", "[placement] The plugin sorcery could not be found"),
        ("auth_type = password\n", "auth_url"),
        ("auth_type = none\nworkers = 0\n", "[placement] workers"),
    ],
)
def test_an_agent_without_a_way_into_placement_does_not_start(programs, options, problem) -> None:
    programs.configure(extra=f"[placement]\nenabled = true\n{options}")
    done = programs.run("nodetracker-compute")
    assert (done.returncode, done.stdout) == (78, "")
    assert problem in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_one_audit_is_reported_before_the_process_ends(programs, placement) -> None:
    name = f"n-{uuid.uuid4().hex[:8]}"
    programs.inventory.write_text(
        f"nodes:\n  - {{nodename: {name}, vcpus: 4, memory_mb: 4096, disk_gb: 40}}\n"
    )
    programs.configure(extra=placement.configuration(port=1, timeout=0.2))  # nothing answers
    done = programs.run("nodetracker-compute", "--once")
    assert (done.returncode, done.stdout[: len(name)]) == (0, name)
    assert "1 node not reported" in done.stderr
    programs.configure(extra=placement.configuration())
    assert programs.run("nodetracker-compute", "--once").returncode == 0
    (provider,) = placement.get(f"/resource_providers?name={name}")["resource_providers"]
    path = f"/resource_providers/{provider['uuid']}/inventories"
    assert placement.get(path)["inventories"]["VCPU"]["total"] == 4


def test_a_disabled_host_has_the_trait_after_the_next_audit(programs, placement) -> None:
    name = f"n-{uuid.uuid4().hex[:8]}"
    programs.inventory.write_text(
        f"nodes:\n  - {{nodename: {name}, vcpus: 4, memory_mb: 4096, disk_gb: 40}}\n"
    )
    programs.configure(extra=placement.configuration(), update_resources_interval=1)

    def read_traits():
        found = placement.get(f"/resource_providers?name={name}")["resource_providers"]
        path = f"/resource_providers/{found[0]['uuid']}/traits" if found else ""
        return set(placement.get(path)["traits"]) if found else set()

    with programs.start() as agent:
        wait_until(lambda: "CUSTOM_OWNER_NODETRACKER" in read_traits())
        for option, is_disabled in (("--disable", True), ("--enable", False)):
            assert programs.manage("host", "set", "host-1", option).returncode == 0
            wait_until(
                lambda is_disabled=is_disabled: (
                    ("COMPUTE_STATUS_DISABLED" in read_traits()) == is_disabled
                )
            )
        assert agent.stop() == 0
        assert "Traceback" not in agent.output()
