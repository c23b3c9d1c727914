"""A host with two nodes."""

from tests.builders import create, key_of, make_incarnation, make_values, take_service


def add_alpha(store):
    """Add a host with two nodes."""
    record = take_service(store, "alpha", make_incarnation())
    values = make_values(
        vcpus=16, vcpus_used=0, pcpus=0, pcpus_used=0, cpu_used=0.0, memory_mb=65536, local_gb=500,
        cpu_allocation_ratio=1.0, ram_allocation_ratio=1.0, disk_allocation_ratio=1.0, reserved={},
        facts={}, numa_topology={},
    )  # fmt: skip
    agent = key_of(record)
    changes = [create(agent, name, values, node_uuid=None) for name in ("n1", "n2")]
    store.apply_changes(agent, changes, 60)
