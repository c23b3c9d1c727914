"""Translate between values and the objects of placement's documents."""

from typing import Any

from nodetracker.accounting.placement.placed import ProviderSummary
from nodetracker.accounting.placement.steps import ConsumerWrite
from nodetracker.accounting.placement.tree import Inventory
from nodetracker.placement.answers import Reader


def read_summary(entry: Reader) -> ProviderSummary:
    """Read a provider of a list."""
    parent = entry.optional_text("parent_provider_uuid")
    return ProviderSummary(
        entry.text("uuid"), entry.text("name"), entry.integer("generation"),
        entry.text("root_provider_uuid"), parent,
    )  # fmt: skip


def read_inventory(entry: Reader) -> Inventory:
    """Read the inventory of a class."""
    return Inventory(
        total=entry.integer("total"),
        reserved=entry.integer("reserved"),
        allocation_ratio=entry.number("allocation_ratio"),
        min_unit=entry.integer("min_unit"),
        max_unit=entry.integer("max_unit"),
        step_size=entry.integer("step_size"),
    )


def write_inventory(inventory: Inventory) -> dict[str, Any]:
    """Write the inventory of a class."""
    return {
        "total": inventory.total,
        "reserved": inventory.reserved,
        "allocation_ratio": inventory.allocation_ratio,
        "min_unit": inventory.min_unit,
        "max_unit": inventory.max_unit,
        "step_size": inventory.step_size,
    }


def write_consumer(write: ConsumerWrite) -> dict[str, Any]:
    """Write all that a consumer is to have."""
    return {
        "allocations": {
            provider: {"resources": dict(amounts)} for provider, amounts in write.resources.items()
        },
        "project_id": write.project_id,
        "user_id": write.user_id,
        "consumer_type": write.type,
        "consumer_generation": write.generation,
    }
