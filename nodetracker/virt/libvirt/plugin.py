"""The entry point of the ``libvirt`` driver and its options."""

from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from nodetracker.errors import ConfigError
from nodetracker.ports import Driver
from nodetracker.virt.plugin import DriverEnvironment, DriverPlugin

OPTIONS = (
    cfg.ListOpt(
        "connection_uris",
        default=["qemu:///system"],
        help="Hypervisors to manage, each [name=]URI, e.g. qemu:///system or "
        "kvm-2=qemu+ssh://root@kvm-2/system. Each is a node, called by its name here or else by "
        "its own hostname.",
    ),
    cfg.IntOpt(
        "keepalive_interval",
        default=5,
        min=0,
        help="Seconds between the messages by which a connection notices that libvirtd does not "
        "answer any more. 0 sends none.",
    ),
    cfg.IntOpt(
        "keepalive_count",
        default=3,
        min=1,
        help="How many such messages in a row may go unanswered before the connection is given up.",
    ),
    cfg.IntOpt(
        "file_backed_memory",
        default=0,
        min=0,
        help="MiB of files that back the memory of guests. Above 0 it is the node's memory.",
    ),
    cfg.BoolOpt(
        "reserve_image_cache",
        default=True,
        help="Whether what the cache of images (_base below instances_path) takes counts as used, "
        "where guests' disks are files of this machine.",
    ),
    cfg.StrOpt(
        "images_type",
        choices=["default", "flat", "raw", "qcow2", "lvm", "rbd"],
        help="How guests' disks are kept. lvm and rbd: the node's disk is libvirt's active storage "
        "pool of that type. Otherwise they are files: the disk is the filesystem of "
        "instances_path, on another machine the pool of files that has most of the guests' disks.",
    ),
)


def _build(environment: DriverEnvironment, values: Mapping[str, Any]) -> Driver:
    from nodetracker.virt.libvirt.endpoint import parse_endpoints

    try:
        endpoints = parse_endpoints(values["connection_uris"])
    except ValueError as error:
        raise ConfigError(f"[libvirt] connection_uris: {error}") from error
    try:
        from nodetracker.virt.libvirt.client import open_client
        from nodetracker.virt.libvirt.connection import ConnectionTimes
        from nodetracker.virt.libvirt.driver import LibvirtDriver
        from nodetracker.virt.libvirt.hypervisor import LibvirtSettings
    except ImportError as error:
        raise ConfigError(
            "[compute] compute_driver: libvirt needs the package libvirt-python "
            f"(pip install 'nodetracker[libvirt]'): {error}"
        ) from error
    return LibvirtDriver(
        endpoints,
        environment,
        LibvirtSettings(
            values["file_backed_memory"], values["images_type"], values["reserve_image_cache"]
        ),
        ConnectionTimes(
            environment.probes.timeout_seconds,
            values["keepalive_interval"],
            values["keepalive_count"],
        ),
        open_client,
    )


PLUGIN = DriverPlugin(group="libvirt", options=OPTIONS, build=_build)
