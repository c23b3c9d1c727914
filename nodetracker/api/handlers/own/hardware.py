"""``/v1/nodes/{uuid}/description`` and ``devices``: what a node is made of."""

from nodetracker.accounting.reports.description import list_resources
from nodetracker.accounting.reports.hardware import CpuUse, render_hardware
from nodetracker.accounting.reports.overview import render_amounts
from nodetracker.accounting.schemas import one_of, record
from nodetracker.api.call import Answer, Call
from nodetracker.api.fields import (
    ANY_TEXT,
    INTEGER,
    PAGE,
    TEXT_OR_NULL,
    answer,
    answer_of,
    answered_page,
    list_of_answers,
)
from nodetracker.api.handlers.own.nodes import NODE_USE
from nodetracker.api.handlers.own.overview import USE
from nodetracker.api.lookup import answer_page, get_node
from nodetracker.fleet.reads import read_consistently
from nodetracker.model.errors import RequestError
from nodetracker.model.listing import DeviceQuery
from nodetracker.model.pci import ADDRESS_PATTERN, PciStatus, TrackedDevice
from nodetracker.model.text import to_plain

_OWNER = answer({"uuid": ANY_TEXT, "name": ANY_TEXT}) | {
    "type": ["object", "null"],
    "description": "the workload that has it",
}
_PART = {"title": ANY_TEXT, "text": ANY_TEXT, "use": NODE_USE}
NODE_CPU = answer({"id": INTEGER, "use": one_of(CpuUse), "text": ANY_TEXT})
NODE_CELL = answer(
    {
        "id": {"type": ["integer", "null"], "description": "null: CPUs that are in no cell"},
        "title": ANY_TEXT,
        "notes": ANY_TEXT,
        "summary": ANY_TEXT | {"description": "which CPUs have each use"},
        "cores": list_of_answers(list_of_answers(NODE_CPU)),
        "memory": list_of_answers(answer(_PART)) | {"description": "memory and huge pages"},
        "distances": list_of_answers({"type": ["integer", "null"]})
        | {"description": "to each cell, in their order"},
    }
)
NODE_GPU = answer({"address": ANY_TEXT, "name": ANY_TEXT, "notes": ANY_TEXT, "owner": _OWNER})
_DEVICE = {
    **dict.fromkeys(("address", "kind", "notes"), ANY_TEXT),
    "status": one_of(PciStatus),
    "owner": _OWNER,
    "summary": ANY_TEXT | {"description": "of its functions"},
}
NODE_FUNCTION = answer(_DEVICE | {"functions": {"type": "array", "maxItems": 0}})
_DEVICES = list_of_answers(
    answer(
        {
            "title": ANY_TEXT | {"description": "the NUMA cell of the devices"},
            "devices": list_of_answers(
                answer(_DEVICE | {"functions": list_of_answers(NODE_FUNCTION)})
            ),
        }
    )
)

DESCRIPTION = answer(
    {
        "amounts": {"type": "object", "additionalProperties": USE},
        "machine": list_of_answers(answer({"label": ANY_TEXT, "text": ANY_TEXT})),
        "cells": list_of_answers(NODE_CELL),
        "gpus": list_of_answers(NODE_GPU),
        "devices": _DEVICES | {"description": "those for guests"},
        "host_devices": _DEVICES,
    }
)

DEVICES_QUERY = record(PAGE)

DEVICES = answered_page(
    "devices",
    answer_of(
        TrackedDevice,
        claim_uuid=TEXT_OR_NULL | {"description": "a claim, or an unclaimed guest"},
        tags={"type": ["object", "null"], "additionalProperties": TEXT_OR_NULL},
    ),
)


def describe_node(call: Call) -> Answer:
    """Describe a node's amounts, machine, NUMA cells, GPUs and PCI devices, with their users."""
    record = read_consistently(call.store, get_node(call).node)
    amounts = {line.resource: line.use for line in list_resources(record)}
    return Answer({"amounts": render_amounts(amounts), **render_hardware(record)})


def list_devices(call: Call) -> Answer:
    """List the PCI devices of a node by address, with what they are assigned to."""
    marker = call.marker
    if marker is not None and not ADDRESS_PATTERN.fullmatch(marker):
        raise RequestError("marker", f"invalid value {marker!r}: expected the address of a device")
    query = DeviceQuery(node_id=get_node(call).node.id, after=marker, limit=call.limit)
    page = call.store.list_device_page(query)
    return answer_page(call, "devices", list(map(to_plain, page.items)), page.next)
