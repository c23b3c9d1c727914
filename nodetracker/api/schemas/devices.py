"""Schemas of PCI devices."""

from nodetracker.accounting.schemas import Schema, one_of, record
from nodetracker.api.paging import LINKS, PAGE
from nodetracker.api.schemas.fields import (
    ANY_TEXT,
    INTEGER,
    TEXT_OR_NULL,
    answer,
    answered_list,
)
from nodetracker.model.pci import PciDeviceType, PciStatus

LIST_QUERY = record(PAGE)

_INTEGER_OR_NULL: Schema = {"type": ["integer", "null"]}

DEVICES = answered_list(
    "devices",
    answer(
        {
            "address": ANY_TEXT,
            "vendor_id": ANY_TEXT,
            "product_id": ANY_TEXT,
            "class_id": ANY_TEXT,
            "dev_type": one_of(PciDeviceType),
            "driver": ANY_TEXT,
            "numa_node": _INTEGER_OR_NULL,
            "parent_addr": TEXT_OR_NULL,
            "vf_total": INTEGER,
            "vf_count": INTEGER,
            "iommu_group": _INTEGER_OR_NULL,
            "status": one_of(PciStatus),
            "claim_uuid": TEXT_OR_NULL | {"description": "a claim, or an unclaimed guest"},
            "tags": {"type": ["object", "null"], "additionalProperties": TEXT_OR_NULL},
        }
    ),
    LINKS,
)
