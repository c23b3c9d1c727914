"""``candidate list`` and claims on a host with several nodes."""

import json
import logging

import pytest

from nodetracker.cmd.manage import ManageApp
from nodetracker.model.service import AuditState
from tests.builders import WORKLOAD, create, make_values, register
from tests.stores import SqliteStore

NODES = {"large": (16, 65536, 500), "middle": (8, 32768, 500), "small": (1, 2048, 20)}
LISTED = ("candidate", "list", "--resource", "VCPU=9", "--resource", "MEMORY_MB=40000")


@pytest.fixture
def manage(conf, capsys):
    """Return a function that runs a command line and returns its exit code, output and errors."""
    store = SqliteStore()
    agent = register(store, "host-1")
    store.report_state(agent, 1, AuditState())
    plain = dict.fromkeys(("cpu_allocation_ratio", "ram_allocation_ratio"), 1.0)
    plain |= dict.fromkeys(("pcpus", "vcpus_used", "pcpus_used", "memory_mb_used", "cpu_used"), 0)
    plain |= {"local_gb_used": 0, "disk_used": 0.0, "disk_allocation_ratio": 1.0, "facts": {}}
    plain |= {"reserved": {"memory_mb": 512}, "overhead": {}, "numa_topology": {}}
    changes = []
    for name, (vcpus, memory_mb, local_gb) in NODES.items():
        size = {"vcpus": vcpus, "memory_mb": memory_mb, "local_gb": local_gb}
        left = {"free_ram_mb": memory_mb - 512, "free_disk_gb": local_gb, "memory_mb_used": 512}
        changes.append(create(agent, name, make_values(**(plain | size | left))))
    store.apply_changes(agent, changes, 60)

    def manage(*words):
        app = ManageApp()
        app.__dict__ |= {"conf": conf, "store": store, "reader": store, "notifier": None}
        app.open_sql_store = lambda is_read_only=False: store
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logging.getLogger(), "handlers", [])
            return app.run(words), *capsys.readouterr()

    return manage


def test_a_host_explains_why_it_takes_a_request_or_not(manage):
    assert manage(*LISTED, "--why", "small") == (
        1,
        "small of host host-1 does not take it\n"
        "  CPU: 1 free, 9 requested\n"
        "  memory: 1.5 GiB free, 39.1 GiB requested\n"
        "  RESOURCE      ASKED     FREE  LIMIT  VERDICT\n"
        "  VCPU              9        1      1  lacks 8\n"
        "  MEMORY_MB  39.1 GiB  1.5 GiB  2 GiB  lacks 37.6 GiB\n",
        "",
    )
    code, shown, _ = manage(*LISTED, "--why", "host-1")  # one of its nodes takes it
    assert code == 0
    assert "large of host host-1 takes it" in shown
    assert "middle of host host-1 does not take it" in shown
    assert shown.index("large") < shown.index("middle") < shown.index("small")
    _, shown, _ = manage(*LISTED, "--why", "host-1/middle")  # as refusals name the nearest
    assert shown.startswith("middle of host host-1 does not take it\n")
    assert "small" not in shown
    assert manage(*LISTED, "--why", "nobody") == (1, "", "no such host or node: nobody\n")
    with pytest.raises(SystemExit, match="2"):
        manage(*LISTED, "--why", "small", "-f", "json")


def test_negative_multipliers_fill_the_fullest_node(manage, conf):
    names = [f"{kind}_weight_multiplier" for kind in ("ram", "cpu", "disk")]
    for name in names:
        conf.set_override(name, -1.0, "scheduler")
    _, shown, _ = manage("candidate", "list", "-f", "json")
    for name in names:
        conf.clear_override(name, "scheduler")
    found = [(row["nodename"], row["weight"]) for row in json.loads(shown)]
    assert found[::2] == [("small", 0), ("large", -3)]


def test_a_host_that_is_named_is_kept_to(manage, tmp_path):
    path = tmp_path / "request.json"
    path.write_text(json.dumps({"workload": {"uuid": WORKLOAD}, "resources": {"VCPU": 1}}))
    named = ("claim", "create", str(path), "--host", "host-1")
    several = "host host-1 has 3 nodes: name one of them (large, middle, small)\n"
    assert manage(*named) == (1, "", several)
    code, shown, _ = manage(*named, "--node", "small", "-f", "json")
    assert (code, json.loads(shown)["nodename"]) == (0, "small")
    assert manage(*named, "--node", "small") == (1, "", "CPU: 0 free, 1 requested\n")
