"""Describe a node's machine in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodetracker.accounting.reports.values import render_mib, render_speed
from nodetracker.model.node import NodeValues
from nodetracker.model.text import count_noun
from nodetracker.model.units import KIB_PER_MIB

_MOST_DISKS = 6
_MOST_NICS = 6


def list_machine(values: NodeValues) -> list[tuple[str, str]]:
    """Return the lines of a machine, each with a label; the text of what is unknown is empty."""
    system = values.system
    product = " ".join(filter(None, (system.get("vendor"), system.get("product"))))
    serial = f"serial {system['serial']}" if system.get("serial") else ""
    version = system.get("firmware_version")
    firmware = f"firmware {version}" if version else ""
    engine = " ".join(filter(None, (values.engine.get("name"), values.engine.get("version"))))
    hypervisor = " ".join(
        filter(None, (values.hypervisor_type, _render_version(values.hypervisor_version)))
    )
    disks = ", ".join(
        f"{disk['name']} {render_mib(disk.get('size_mb'))}" for disk in values.disks[:_MOST_DISKS]
    )
    nics = _render_nics(system.get("nics", ()))
    software = ", ".join(filter(None, (values.os, values.kernel_version)))
    hypervisors = ", ".join(filter(None, (hypervisor, engine)))
    return [
        ("Product", ", ".join(filter(None, (product, serial, firmware)))),
        ("CPU", _render_cpu(values)),
        ("Caches", _render_caches(system.get("caches", ()))),
        ("Memory", f"{render_mib(values.memory_mb)}{f'; disks {disks}' if disks else ''}"),
        ("Network", "; ".join(filter(None, (values.host_ip, nics)))),
        ("System", "; ".join(filter(None, (software, hypervisors)))),
    ]


def _render_cpu(values: NodeValues) -> str:
    info = values.cpu_info
    topology = info.get("topology") or {}
    names = (("cells", "cell"), ("sockets", "socket"), ("cores", "core"), ("threads", "thread"))
    parts = [
        count_noun(topology[key], noun)
        for key, noun in names
        if topology.get(key) and (key != "cells" or topology[key] > 1)
    ]
    model = info.get("model") or values.architecture
    return ", ".join(filter(None, (model, " x ".join(parts))))


def _render_caches(caches: Sequence[Mapping[str, Any]]) -> str:
    """Return the caches as lscpu names them.

    >>> _render_caches([{"level": 1, "kind": "data", "size_kb": 32, "count": 16}])
    '16 x 32 KiB L1d'
    """
    texts = []
    for cache in caches:
        size = cache["size_kb"]
        shown = f"{size} KiB" if size < KIB_PER_MIB else render_mib(size / KIB_PER_MIB)
        suffix = "" if cache["kind"] == "unified" else cache["kind"][0]
        texts.append(f"{cache['count']} x {shown} L{cache['level']}{suffix}")
    return ", ".join(texts)


def _render_nics(nics: Sequence[Mapping[str, Any]]) -> str:
    """Return the first interfaces, those of equal speed and driver together."""
    names: dict[str, list[str]] = {}
    for nic in nics[:_MOST_NICS]:
        driver = f" ({nic['driver']})" if nic["driver"] else ""
        names.setdefault(f"{render_speed(nic['speed_mbps'])}{driver}", []).append(nic["name"])
    texts = [f"{' '.join(found)} {text}" for text, found in names.items()]
    if len(nics) > _MOST_NICS:
        texts.append(f"… {len(nics) - _MOST_NICS} more")
    return ", ".join(texts)


def _render_version(version: int) -> str:
    """Return Nova's version number as text.

    >>> _render_version(8002001)
    '8.2.1'
    """
    parts = (version // 1_000_000, version // 1000 % 1000, version % 1000)
    return ".".join(map(str, parts)) if version else ""
