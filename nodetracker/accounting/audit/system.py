"""Compute the columns of the system fact: names, software, network interfaces and CPU caches."""

from collections.abc import Mapping
from typing import Any

from nodetracker.model.host import Nic, SystemInfo


def system_columns(system: SystemInfo, before: Mapping[str, Any]) -> dict[str, Any]:
    """Build the columns of the system fact.

    Args:
        before: the column ``system`` as stored; an interface whose speed is unknown
            keeps its own, so that a link that goes down and up changes nothing.
    """
    speeds = {(nic["name"], nic["address"]): nic["speed_mbps"] for nic in before.get("nics", ())}
    return {
        "os_type": system.os_type,
        "os": system.os,
        "kernel_version": system.kernel_version,
        "boot_id": system.boot_id,
        "booted_at": system.booted_at,
        "hypervisor_uuid": system.uuid or None,
        "system": {
            "hostname": system.hostname,
            "vendor": system.vendor,
            "product": system.product,
            "product_version": system.product_version,
            "serial": system.serial,
            "firmware_version": system.firmware_version,
            "nics": [_nic(nic, speeds.get((nic.name, nic.address))) for nic in system.nics],
            "caches": [
                {
                    "level": cache.level,
                    "kind": cache.kind,
                    "size_kb": cache.size_kb,
                    "count": cache.count,
                }
                for cache in system.caches
            ],
        },
    }


def _nic(nic: Nic, last_speed: int | None) -> dict[str, Any]:
    return {
        "name": nic.name,
        "address": nic.address,
        "driver": nic.driver,
        "speed_mbps": last_speed if nic.speed_mbps is None else nic.speed_mbps,
    }
