"""Nodes and requests for tests of claims, migrations and candidates."""

import uuid

from nodetracker.model.service import AuditState
from tests.builders import create, make_values, register

HOST, NODE = "host-1", "node-1"
UNKNOWN = "00000000-0000-4000-8000-000000000000"
HUGE = 2**63


def make_node_values(**values):
    """Build a node of 8 CPUs, 8 GiB and 100 GiB, without overcommitment."""
    base = {
        "vcpus": 8, "memory_mb": 8192, "local_gb": 100, "pcpus": 0, "pcpus_used": 0,
        "cpu_used": 0.0, "memory_mb_used": 0, "disk_used": 0.0, "vcpus_used": 0,
        "local_gb_used": 0, "cpu_allocation_ratio": 1.0, "ram_allocation_ratio": 1.0,
        "disk_allocation_ratio": 1.0, "reserved": {}, "overhead": {}, "facts": {},
        "traits": ["T1"], "numa_topology": {}, "pci_stats": [],
    }  # fmt: skip
    return make_values(**base | values)


def add_node(store, host=HOST, nodename=NODE, **values):
    """Make a live node as `make_node_values` builds it."""
    agent = register(store, host, f"agent-of-{host}")
    store.report_state(agent, 1, AuditState())
    store.apply_changes(agent, [create(agent, nodename, make_node_values(**values))], 60)


def make_body(cpus=2, memory_mb=1024, project="p1", **more):
    """Build the body of a claim request for a new workload."""
    return {
        "workload": {"uuid": str(uuid.uuid4()), "name": "web", "project_id": project},
        "resources": {"VCPU": cpus, "MEMORY_MB": memory_mb},
    } | more


def post(api, path, body=None):
    """POST a body, if any."""
    return api.request("POST", path, **({} if body is None else {"json": body}))
