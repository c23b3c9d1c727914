"""Parse ``/proc/cpuinfo``, whose format differs between architectures."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetracker.host.roots import parse_integer

_MODEL_KEYS = ("model name", "cpu model", "cpu", "Processor", "family", "uarch", "machine")
_VENDOR_KEYS = ("vendor_id", "vendor", "CPU implementer", "mvendorid")
_FLAG_KEYS = ("flags", "Features", "features")
_NUMBERED = re.compile(r"processor +([0-9]{1,6})")
_S390_MACHINE = re.compile(r"machine = (\S+)")
_ARM_ARCHITECTURE = re.compile(r"([5-9])")


@dataclass(frozen=True, slots=True)
class Cpuinfo:
    """The contents of ``/proc/cpuinfo``.

    Attributes:
        processors: ids of the online CPUs in the order of the file.
        package_of, core_of: CPU id -> "physical id" and "core id", on the
            architectures that have them.
        architecture: as in ``uname -m``, "" when it cannot be derived.
        model, vendor: of the first processor, "" when unknown.
        flags: of the first processor, in ascending order.
    """

    processors: tuple[int, ...] = ()
    package_of: Mapping[int, int] = field(default_factory=dict)
    core_of: Mapping[int, int] = field(default_factory=dict)
    architecture: str = ""
    model: str = ""
    vendor: str = ""
    flags: tuple[str, ...] = ()


def parse_cpuinfo(text: str, source: str = "/proc/cpuinfo") -> Cpuinfo:
    r"""Parse the text of ``/proc/cpuinfo``.

    The first line with a key wins: some architectures write it once for all
    processors, before or after them. Unknown lines are ignored. Text without
    processors is valid.

    Raises:
        HostDataError: the id of a processor, package or core is not a number.

    Source: ``show_cpuinfo()`` of x86, arm, arm64, s390, powerpc, ia64, riscv.

    >>> parse_cpuinfo("processor\t: 0\nvendor_id\t: GenuineIntel\n").processors
    (0,)
    """
    first: dict[str, str] = {}
    processors: dict[int, None] = {}
    package_of: dict[int, int] = {}
    core_of: dict[int, int] = {}
    current: int | None = None
    for line in text.split("\n"):
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if not colon:
            continue
        if key in {"processor", "cpu number"}:
            current = parse_integer(value, source)
            processors[current] = None
        elif key == "physical id" and current is not None:
            package_of[current] = parse_integer(value, source)
        elif key == "core id" and current is not None:
            core_of[current] = parse_integer(value, source)
        elif numbered := _NUMBERED.fullmatch(key):  # s390 before Linux 4.20
            processors[int(numbered[1])] = None
            if machine := _S390_MACHINE.search(value):
                first.setdefault("machine", machine[1])
        elif value:
            first.setdefault(key, value)
    return Cpuinfo(
        processors=tuple(processors),
        package_of=package_of,
        core_of=core_of,
        architecture=_name_architecture(first),
        model=_first_of(first, _MODEL_KEYS),
        vendor=_first_of(first, _VENDOR_KEYS),
        flags=tuple(sorted(set(_first_of(first, _FLAG_KEYS).split()))),
    )


def _first_of(lines: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((lines[key] for key in keys if key in lines), "")


def _name_architecture(lines: Mapping[str, str]) -> str:
    """Return the ``uname -m`` name; "" on POWER, whose byte order is not in the text."""
    if lines.get("vendor_id") == "IBM/S390":
        return "s390x"
    if lines.get("arch") == "IA-64":
        return "ia64"
    if "flags" in lines and "bogomips" in lines:
        return "x86_64" if "lm" in lines["flags"].split() else "i686"
    if lines.get("isa", "").startswith(("rv32", "rv64")):
        return "riscv" + lines["isa"][2:4]
    if "CPU architecture" in lines:
        return _name_arm(lines)
    return ""


def _name_arm(lines: Mapping[str, str]) -> str:
    is_32_bit = "thumb" in lines.get("Features", "").split()
    version = _ARM_ARCHITECTURE.match(lines["CPU architecture"])
    if lines["CPU architecture"] == "AArch64" or (version and version[1] >= "8"):
        return "armv8l" if is_32_bit else "aarch64"
    return f"armv{version[1]}l" if version else ""
