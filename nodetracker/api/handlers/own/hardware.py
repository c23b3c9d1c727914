"""``/v1/nodes/{uuid}/description`` and ``devices``: what a node is made of."""

from nodetracker.accounting.withheld import mark_withheld
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import (
    PAGE,
    answer,
    answer_of,
    answered_page,
    nullable,
    parameters,
    schema_of,
)
from nodetracker.api.handlers.own.nodes import NODE_USE
from nodetracker.api.handlers.own.overview import USE
from nodetracker.api.lookup import answer_page, get_node
from nodetracker.model.errors import RequestError
from nodetracker.model.listing import DeviceQuery
from nodetracker.model.pci import ADDRESS_PATTERN, PciStatus, TrackedDevice
from nodetracker.model.serializer import encode
from nodetracker.usecases.reads import read_consistently
from nodetracker.views.description import list_resources
from nodetracker.views.hardware import CpuUse, list_gpu_models, render_hardware
from nodetracker.views.overview import left_on_node
from nodetracker.views.plain_overview import render_amounts

_OWNER = nullable(answer(uuid=str, name=str), "the workload that has it")
NODE_CPU = answer(id=int, use=CpuUse, text=str)
NODE_CELL = answer(
    id=(int | None, "null: CPUs that are in no cell"),
    title=str,
    notes=str,
    summary=(str, "which CPUs have each use"),
    cores=[[NODE_CPU]],
    memory=([answer(title=str, text=str, use=NODE_USE)], "memory and huge pages"),
    distances=([int | None], "to each cell, in their order"),
)
NODE_GPU = answer(address=str, name=str, notes=str, owner=_OWNER)
GPU_MODELS = answer(
    gpus=[
        answer(
            text=str,
            names=([str], "the models that are requested alike"),
            resource=(str | None, "the resource class by which claims request them"),
            alias=(str | None, "the PCI alias by which claims request them"),
            count=(int, "GPUs, or functions of them that the alias matches"),
        )
    ]
)
TRAITS = answer(traits=[answer(name=str, nodes=([str], "the uuids of those that have it"))])
_DEVICE = {
    "address": str,
    "kind": str,
    "notes": str,
    "status": PciStatus,
    "owner": _OWNER,
    "summary": (str, "of its functions"),
}
NODE_FUNCTION = answer(**_DEVICE, functions={"type": "array", "maxItems": 0})
_DEVICES = [
    answer(
        title=(str, "the NUMA cell of the devices"),
        devices=[answer(**_DEVICE, functions=[NODE_FUNCTION])],
    )
]

DESCRIPTION = answer(
    amounts={str: USE},
    left=({str: str}, "of each resource class, in words, and what the disk has where that is less"),
    machine=[answer(label=str, text=str)],
    cells=[NODE_CELL],
    gpus=[NODE_GPU],
    devices=(_DEVICES, "those for guests"),
    host_devices=_DEVICES,
)

DEVICES_QUERY = parameters(**PAGE)

DEVICES = answered_page(
    "devices",
    answer_of(
        TrackedDevice,
        claim_uuid=(str | None, "a claim, or an unclaimed guest"),
        tags=schema_of({str: str | None}) | {"type": ["object", "null"]},
    ),
)


def describe_node(call: Call) -> Answer:
    """Describe a node's amounts, machine, NUMA cells, GPUs and PCI devices, with their users."""
    record = read_consistently(call.store, get_node(call).node)
    amounts = {line.resource: line.use for line in list_resources(record)}
    least = record.values.disk_available_least
    left = {name: left_on_node(name, use, least).render(name) for name, use in amounts.items()}
    return Answer({"amounts": render_amounts(amounts), "left": left, **render_hardware(record)})


def list_devices(call: Call) -> Answer:
    """List the PCI devices of a node by address, with what they are assigned to."""
    marker = call.marker
    if marker is not None and not ADDRESS_PATTERN.fullmatch(marker):
        raise RequestError("marker", f"invalid value {marker!r}: expected the address of a device")
    node = get_node(call, ("reserved", "gpus")).node
    query = DeviceQuery(node_id=node.id, after=marker, limit=call.limit)
    page = call.store.list_device_page(query)
    marked = mark_withheld({device.address: device for device in page.items}, node.values)
    return answer_page(call, "devices", list(map(encode, marked.values())), page.next)


def list_gpus(call: Call) -> Answer:
    """List the GPU models of the fleet, and how claims request them."""
    models = list_gpu_models(call.store.list_gpus(), call.backend.policy.aliases)
    return Answer({"gpus": models})


def list_traits(call: Call) -> Answer:
    """List the custom traits of the fleet by name, each with the nodes that have it."""
    nodes: dict[str, list[str]] = {}
    for uuid, traits in call.store.list_custom_traits().items():
        for name in traits:
            nodes.setdefault(name, []).append(uuid)
    return Answer({"traits": [{"name": name, "nodes": nodes[name]} for name in sorted(nodes)]})
