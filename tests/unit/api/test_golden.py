"""Answers of Nova's resources, as files in ``tests/golden/nova`` have them for each microversion.

GOLDEN=write in the environment renews them. Each file has the microversions with the same answer.
"""

import json
import os
import re
from datetime import timedelta
from pathlib import Path

import pytest

from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, AuditState, ServiceChange
from tests.builders import ADMISSION_POLICY, ask, create, make_node, make_values, register
from tests.contract.hosts import add_host, add_host_without_agent
from tests.unit.api.conftest import add_service

GOLDEN = Path(__file__).parents[2] / "golden/nova"
VERSIONS = ("2.1", "2.42", "2.53", "2.69", "2.75", "2.87", "2.88", "2.96")

# The name of a file -> a path in which NODE, SERVICE stand for ids in the microversion.
READ = {
    "versions": "/",
    "version": "/v2.1",
    "hypervisors": "/v2.1/os-hypervisors",
    "hypervisors-with-servers": "/v2.1/os-hypervisors?with_servers=true",
    "hypervisors-by-name": "/v2.1/os-hypervisors?hypervisor_hostname_pattern=a",
    "hypervisors-detail": "/v2.1/os-hypervisors/detail",
    "hypervisors-page": "/v2.1/os-hypervisors/detail?limit=1",
    "hypervisor": "/v2.1/os-hypervisors/NODE",
    "hypervisor-by-name": "/v2.1/os-hypervisors/a1",
    "hypervisor-uptime": "/v2.1/os-hypervisors/NODE/uptime",
    "hypervisor-search": "/v2.1/os-hypervisors/a/search",
    "hypervisor-servers": "/v2.1/os-hypervisors/node-1/servers",
    "hypervisor-statistics": "/v2.1/os-hypervisors/statistics",
    "services": "/v2.1/os-services",
    "services-of-a-host": "/v2.1/os-services?binary=nova-compute&host=beta",
    "hosts": "/v2.1/os-hosts",
    "hosts-of-a-zone": "/v2.1/os-hosts?zone=internal",
    "host": "/v2.1/os-hosts/gamma",
    "aggregates": "/v2.1/os-aggregates",
    "availability-zones": "/v2.1/os-availability-zone",
    "availability-zones-detail": "/v2.1/os-availability-zone/detail",
    "limits": "/v2.1/limits",
    "unknown": "/v2.1/flavors",
}
_NAMED = {"host": "alpha", "binary": "nova-compute"}
CHANGES = {
    "service-update": ("PUT", "/v2.1/os-services/SERVICE", {"status": "disabled"}),
    "service-enable": ("PUT", "/v2.1/os-services/enable", _NAMED),
    "service-disable": ("PUT", "/v2.1/os-services/disable", _NAMED),
    "service-disable-log-reason": (
        "PUT", "/v2.1/os-services/disable-log-reason", _NAMED | {"disabled_reason": "why"},
    ),
    "service-force-down": (
        "PUT", "/v2.1/os-services/force-down", _NAMED | {"forced_down": True},
    ),
    "service-delete": ("DELETE", "/v2.1/os-services/SERVICE", None),
    "host-status": ("PUT", "/v2.1/os-hosts/alpha", {"status": "disable"}),
    "host-maintenance": ("PUT", "/v2.1/os-hosts/alpha", {"maintenance_mode": "enable"}),
    "host-reboot": ("GET", "/v2.1/os-hosts/alpha/reboot", None),
}  # fmt: skip


@pytest.fixture(autouse=True)
def fleet(store):
    agent = register(store, "alpha", "agent-of-alpha")
    store.report_state(agent, 1, AuditState(1.0, load_average=(0.2, 0.12, 0.14)))
    booted_at = store.now() - timedelta(days=93, minutes=5)
    nodes = [create(agent, name, make_values(booted_at=booted_at)) for name in ("a1", "a2")]
    store.apply_changes(agent, nodes, 60)
    add_host(store, "beta", "b1", booted_at=None)
    store.set_service("beta", COMPUTE_BINARY, ServiceChange(True, "broken", forced_down=True))
    add_host_without_agent(store, "gone", "g1")
    make_node(store, host="gamma")
    store.create_claim(ask(VCPU=1, MEMORY_MB=512), "gamma", "node-1", ADMISSION_POLICY)
    add_service(store, "ctl", CONDUCTOR_BINARY, 4)


def ids_of(store, version):
    """Return what stands for an id in paths -> the id in a microversion."""
    node = next(node for node in store.list_nodes() if node.nodename == "a1")
    service = store.list_services("alpha", COMPUTE_BINARY)[0]
    name = "uuid" if tuple(map(int, version.split("."))) >= (2, 53) else "id"
    return {"NODE": str(getattr(node, name)), "SERVICE": str(getattr(service, name))}


def steady(text, store):
    """Replace what differs from run to run."""
    for node in store.list_nodes():
        text = text.replace(node.uuid, f"uuid of {node.nodename}")
    for service in store.list_services():
        text = text.replace(service.uuid, f"uuid of {service.binary} on {service.host}")
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+\.\d{6}", "TIME", text)
    text = re.sub(r"\d\d:\d\d:\d\d up .*?,  0 users", "TIME up DAYS,  0 users", text)
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", text)


def ask_for(api, store, version, method, path, body=None):
    """Return status and body of an answer."""
    for word, id_ in ids_of(store, version).items():
        path = path.replace(word, id_)
    headers = {"OpenStack-API-Version": f"compute {version}"}
    options = {} if body is None else {"json": body}
    found = api.request(method, path, headers=headers, **options)
    text = steady(found.text, store)
    return {"status": found.status_code, "body": json.loads(text) if text else None}


def group(answers):
    """Return answers by the microversions that have the same one."""
    grouped = []
    for version, answer in answers.items():
        if grouped and grouped[-1]["answer"] == answer:
            grouped[-1]["versions"].append(version)
        else:
            grouped.append({"versions": [version], "answer": answer})
    return {" ".join(item["versions"]): item["answer"] for item in grouped}


def compare(name, answers):
    text = json.dumps(group(answers), indent=1) + "\n"
    path = GOLDEN / f"{name}.json"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", READ)
def test_answers_are_those_of_the_file(api, store, name):
    compare(name, {v: ask_for(api, store, v, "GET", READ[name]) for v in VERSIONS})


@pytest.mark.parametrize("name", CHANGES)
def test_answers_to_changes_are_those_of_the_file(api, store, name):
    compare(name, {v: ask_for(api, store, v, *CHANGES[name]) for v in VERSIONS})


def test_every_file_belongs_to_a_resource():
    assert {path.stem for path in GOLDEN.iterdir()} == READ.keys() | CHANGES.keys()
