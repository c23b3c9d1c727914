"""Build settings from the configuration, which only bootstrap and the commands read."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from oslo_config import cfg

from nodetracker.accounting.liveness import explain_short_down_time
from nodetracker.bootstrap.options.api import SCHEDULER
from nodetracker.bootstrap.options.default import DEFAULT
from nodetracker.bootstrap.options.pci_entries import parse_aliases, parse_device_specs
from nodetracker.bootstrap.values import (
    Problems,
    build_from_options,
    check_values,
    is_set,
    read_host_name,
    read_value,
)
from nodetracker.model.cpuset import CpuSet, parse_cpu_set, render_cpu_set
from nodetracker.model.errors import ConfigError
from nodetracker.model.numa import ReservedPages
from nodetracker.model.settings import (
    DEFAULT_AUDIT_INTERVAL,
    AgentSettings,
    AllocationRatios,
    Multipliers,
    PciPolicy,
    Policy,
    SchedulerSettings,
)
from nodetracker.model.units import parse_page_size_kb
from nodetracker.ports import AdmissionPolicy
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.host.system import read_own_address

_MAX_PAGES = 2**40
_Entry = TypeVar("_Entry")


def build_settings(conf: cfg.ConfigOpts) -> AgentSettings:
    """Return the settings of the agent's core, with every value checked.

    Raises:
        ConfigError: values are malformed or contradict others; it names all of them.
    """
    problems = Problems()
    settings = problems.collect(read_settings, conf)
    problems.collect(_check_down_time, conf)
    problems.raise_any()
    return settings


def read_settings(conf: cfg.ConfigOpts) -> AgentSettings:
    """Return the settings even if an agent would not start with them.

    Raises:
        ConfigError: values are malformed; it names all of them.
    """
    problems = Problems()
    problems.collect(check_values, conf)
    host = problems.collect(read_host_name, conf)
    policy = problems.collect(_build_policy, conf)
    problems.raise_any()
    interval = conf.compute.update_resources_interval
    return build_from_options(
        AgentSettings,
        conf.compute,
        conf,
        host=host,
        policy=policy,
        audit_interval=None if interval < 0 else interval or DEFAULT_AUDIT_INTERVAL,
        is_packing_cells=conf.compute.packing_host_numa_cells_allocation_strategy,
    )


def build_admission_policy(conf: cfg.ConfigOpts) -> AdmissionPolicy:
    """Return the settings of ledger transactions.

    Raises:
        ConfigError: an alias is malformed.
    """
    return build_from_options(
        AdmissionPolicy,
        conf.compute,
        conf,
        is_packing=conf.compute.packing_host_numa_cells_allocation_strategy,
        aliases=parse_aliases(conf.pci.alias or ()),
    )


def build_scheduler_settings(conf: cfg.ConfigOpts) -> SchedulerSettings:
    """Return the ``[scheduler]`` group's values.

    Raises:
        ConfigError: a value is malformed.
    """
    multipliers = Multipliers(
        **{
            kind: read_value(conf, SCHEDULER.name, f"{kind}_weight_multiplier")
            for kind in ("ram", "cpu", "disk")
        }
    )
    sizes = (
        read_value(conf, SCHEDULER.name, name) for name in ("host_subset_size", "nodes_to_weigh")
    )
    return SchedulerSettings(multipliers, *sizes)


def build_roots(conf: cfg.ConfigOpts) -> Roots:
    """Return the directories of the host's files."""
    group = conf["host"]  # `conf.host` is the option of that name
    return Roots(Path(group.procfs), Path(group.sysfs), Path(group.rootfs))


def check_conductor_values(conf: cfg.ConfigOpts) -> None:
    """Check every value that a conductor uses.

    Raises:
        ConfigError: values are malformed or contradict others; it names all of them.
    """
    problems = Problems()
    for check in (check_values, _check_down_time, read_host_name):
        problems.collect(check, conf)
    problems.raise_any()


def _check_down_time(conf: cfg.ConfigOpts) -> None:
    limit, interval = conf.service_down_time, conf.report_interval
    problem = explain_short_down_time(limit, interval)
    if problem is None:
        return
    if is_set(conf, DEFAULT.name, "report_interval") and not is_set(
        conf, DEFAULT.name, "service_down_time"
    ):
        raise ConfigError(
            f"[DEFAULT] report_interval: {interval} is more than a third of service_down_time "
            f"({limit}, its default): a single late heartbeat would mark the host as down"
        )
    raise ConfigError(f"[DEFAULT] {problem}")


def _build_policy(conf: cfg.ConfigOpts) -> Policy:
    # Only agents need it, and it needs yaml.
    from nodetracker.bootstrap.options.provider_files import read_provider_files

    group, problems = conf.compute, Problems()
    shared = problems.collect(_read_cpu_set, group, "cpu_shared_set")
    dedicated = problems.collect(_read_cpu_set, group, "cpu_dedicated_set")
    both = (shared or frozenset()) & (dedicated or frozenset())
    if both:
        text = f"[compute] cpu_shared_set and cpu_dedicated_set both contain {render_cpu_set(both)}"
        problems.add(text)
    pages = problems.collect(_read_entries, group, "reserved_huge_pages", _reserved_pages)
    networks = problems.collect(_read_entries, group, "numa_network", _numa_network)
    pci = problems.collect(_build_pci_policy, conf)
    providers = problems.collect(lambda: read_provider_files(Path(group.provider_config_location)))
    problems.raise_any()
    return build_from_options(
        Policy,
        group,
        reserved_cpus=group.reserved_host_cpus,
        reserved_memory_mb=group.reserved_host_memory_mb,
        reserved_disk_mb=group.reserved_host_disk_mb,
        reserved_pages=pages,
        configured_ratios=_ratios(group, ""),
        initial_ratios=_ratios(group, "initial_"),
        cpu_shared_set=shared,
        cpu_dedicated_set=dedicated,
        host_ip=conf.my_ip or read_own_address(),
        pci=pci,
        providers=providers,
        withholds_unresolved=group.unresolved == "withhold",
        ignores_inactive=group.inactive_guests == "ignored",
        engine_modes={},  # of the drivers, which only an agent builds
        numa_networks=dict(networks),
        limits_numa_cells=group.limit_numa_cells,
        withholds_huge_pages=conf.placement.withhold_huge_pages,
    )


def _build_pci_policy(conf: cfg.ConfigOpts) -> PciPolicy:
    group, problems = conf.pci, Problems()
    specs = problems.collect(
        lambda: parse_device_specs(group.device_spec, group.report_in_placement)
    )
    aliases = problems.collect(lambda: parse_aliases(group.alias))
    problems.raise_any()
    return PciPolicy(specs, aliases, group.report_in_placement)


def _ratios(group: cfg.ConfigOpts.GroupAttr, prefix: str) -> AllocationRatios:
    names = [f"{prefix}{kind}_allocation_ratio" for kind in ("cpu", "ram", "disk")]
    return AllocationRatios(*(group[name] for name in names))


def _read_cpu_set(group: cfg.ConfigOpts.GroupAttr, option: str) -> CpuSet | None:
    text = group[option]
    if text is None:
        return None
    try:
        cpus = parse_cpu_set(text)
    except ValueError as error:
        raise ConfigError(f"[compute] {option}: {error}") from error
    if not cpus:
        raise ConfigError(f"[compute] {option}: {text!r} contains no CPU")
    return cpus


def _read_entries(
    group: cfg.ConfigOpts.GroupAttr, option: str, parse: Callable[[Any], _Entry]
) -> tuple[_Entry, ...]:
    """Parse each value of an option; raises one error that names all invalid ones."""
    problems = Problems()
    entries = tuple(problems.collect(parse, value) for value in group[option] or ())
    problems.raise_any()
    return entries


def _reserved_pages(entry: Mapping[str, str]) -> ReservedPages:
    try:
        if set(entry) != {"node", "size", "count"}:
            raise ValueError("must have exactly the keys node, size and count")
        for key in ("node", "count"):
            if not (entry[key].isdecimal() and int(entry[key]) <= _MAX_PAGES):
                raise ValueError(
                    f"{key}: {entry[key]!r} is not a whole number from 0 to {_MAX_PAGES}"
                )
        size_kb = parse_page_size_kb(entry["size"])
        return ReservedPages(int(entry["node"]), size_kb, int(entry["count"]))
    except ValueError as error:
        text = ",".join(f"{key}:{value}" for key, value in entry.items())
        raise ConfigError(f"[compute] reserved_huge_pages: {text}: {error}") from error


def _numa_network(entry: str) -> tuple[str, CpuSet]:
    name, _, cells = entry.rpartition("=")
    try:
        if not name.strip():
            raise ValueError("is not NAME=CELLS")
        return name.strip(), parse_cpu_set(cells)
    except ValueError as error:
        raise ConfigError(f"[compute] numa_network: {entry}: {error}") from error
