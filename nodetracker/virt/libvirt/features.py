"""Read features of processor and emulator; derive standard placement traits as Nova does."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from nodetracker.model.host import CpuInfo
from nodetracker.virt.libvirt.capabilities import parse_capabilities
from nodetracker.virt.libvirt.xml import iter_enum, parse_document

if TYPE_CHECKING:  # the module imports libvirt-python
    from nodetracker.virt.libvirt.client import LibvirtClient


@dataclass(frozen=True, slots=True)
class HostFeatures:
    """Features that change only when libvirtd restarts.

    Attributes:
        cpu: the processor's features, including those that its model implies.
    """

    cpu: tuple[str, ...] = ()
    domain_capabilities: Element | None = None


def read_features(client: "LibvirtClient", source: str) -> HostFeatures:
    """Query a host's features."""
    text = client.get_domain_capabilities()
    document = None if text is None else parse_document(text, "domainCapabilities", source)
    return HostFeatures(_read_cpu_features(client), document)


def _read_cpu_features(client: "LibvirtClient") -> tuple[str, ...]:
    cpu = parse_capabilities(client.get_capabilities()).find("host/cpu")
    if cpu is None or cpu.find("model") is None:
        return ()
    text = client.expand_cpu_features(ElementTree.tostring(cpu, encoding="unicode"))
    if text is None:
        return ()
    return tuple(
        item.get("name", "")
        for item in parse_document(text, "cpu", "baseline CPU").iterfind("feature")
        if item.get("policy", "require") != "disable"
    )


# libvirt's name of the feature -> suffix of os-traits' HW_CPU_X86_*.
_CPU_FEATURES = {
    "3dnow": "3DNOW", "abm": "ABM", "aes": "AESNI", "amx-bf16": "AMXBF16", "amx-int8": "AMXINT8",
    "amx-tile": "AMXTILE", "avx": "AVX", "avx2": "AVX2",
    "avx512bw": "AVX512BW", "avx512cd": "AVX512CD", "avx512dq": "AVX512DQ",
    "avx512er": "AVX512ER", "avx512f": "AVX512F", "avx512pf": "AVX512PF",
    "avx512vl": "AVX512VL", "avx512vnni": "AVX512VNNI", "avx512vbmi": "AVX512VBMI",
    "avx512ifma": "AVX512IFMA", "avx512vbmi2": "AVX512VBMI2", "avx512bitalg": "AVX512BITALG",
    "vaes": "AVX512VAES", "gfni": "AVX512GFNI", "vpclmulqdq": "AVX512VPCLMULQDQ",
    "avx512-vpopcntdq": "AVX512VPOPCNTDQ", "bmi1": "BMI", "bmi2": "BMI2", "f16c": "F16C",
    "fma": "FMA3", "fma4": "FMA4", "mmx": "MMX", "mpx": "MPX",
    "pclmuldq": "CLMUL", "pclmulqdq": "CLMUL", "pdpe1gb": "PDPE1GB",
    "rtm": "TSX", "hle": "TSX", "sha-ni": "SHA", "sse": "SSE", "sse2": "SSE2", "pni": "SSE3",
    "sse4.1": "SSE41", "sse4.2": "SSE42", "sse4a": "SSE4A", "ssse3": "SSSE3", "stibp": "STIBP",
    "svm": "SVM", "tbm": "TBM", "vmx": "VMX", "xop": "XOP",
}  # fmt: skip
# Those that have a vendor's trait beside the general one.
_VENDOR_CPU_FEATURES = {"svm": "AMD_SVM", "vmx": "INTEL_VMX"}

# Source: os-traits, HW_ARCH_* and COMPUTE_*. Images request them if Nova's scheduler has
# image_metadata_prefilter.
_HOST_ARCHITECTURES = {
    "aarch64", "alpha", "armv6", "armv7", "armv7b", "cris", "i686", "ia64", "lm32", "m68k",
    "microblaze", "microblazeel", "mips", "mipsel", "mips64", "mips64el", "openrisc", "parisc",
    "parisc64", "ppc", "ppcle", "ppc64", "ppc64le", "ppcemb", "s390", "s390x", "sh4", "sh4eb",
    "sparc", "sparc64", "unicore32", "x86_64", "xtensa", "xtensaeb",
}  # fmt: skip
_GUEST_ARCHITECTURES = {"aarch64", "mipsel", "ppc64le", "riscv64", "s390x", "x86_64"}
_DISK_BUSES = {
    "fdc", "ide", "lxc", "sata", "scsi", "usb", "uml", "virtio", "xen",
}  # fmt: skip
_VIDEO_MODELS = {
    "bochs", "cirrus", "gop", "none", "qxl", "vga", "virtio", "vmvga", "xen",
}  # fmt: skip
_TPM_MODELS = {"tpm-tis": "TIS", "tpm-crb": "CRB"}
_TPM_VERSIONS = {"1.2": "1_2", "2.0": "2_0"}


def derive_traits(
    cpu: CpuInfo,
    supported_instances: Iterable[tuple[str, str, str]],
    domain_capabilities: Element | None,
) -> tuple[str, ...]:
    """Return the standard traits of a host, in ascending order.

    Args:
        cpu: its processor, with flags in libvirt's names.
        supported_instances: (architecture, hypervisor type, vm mode) of guests that can be run.
    """
    found = {
        f"HW_CPU_X86_{suffixes[name]}"
        for suffixes in (_CPU_FEATURES, _VENDOR_CPU_FEATURES)
        for name in cpu.flags
        if name in suffixes
    }
    if cpu.architecture in _HOST_ARCHITECTURES:
        found.add(f"HW_ARCH_{cpu.architecture.upper()}")
    found |= {
        f"COMPUTE_ARCH_{architecture.upper()}"
        for architecture, _, _ in supported_instances
        if architecture in _GUEST_ARCHITECTURES
    }
    if cpu.threads > 1:
        found.add("HW_CPU_HYPERTHREADING")
    if domain_capabilities is not None:
        found |= _emulator_traits(domain_capabilities)
    return tuple(sorted(found))


def _emulator_traits(document: Element) -> set[str]:
    found = {
        f"COMPUTE_STORAGE_BUS_{bus.upper()}"
        for bus in iter_enum(document.find("devices/disk"), "bus")
        if bus in _DISK_BUSES
    }
    found |= {
        f"COMPUTE_GRAPHICS_MODEL_{model.upper()}"
        for model in iter_enum(document.find("devices/video"), "modelType")
        if model in _VIDEO_MODELS
    }
    tpm = document.find("devices/tpm[@supported='yes']")
    if "emulator" in iter_enum(tpm, "backendModel"):
        # libvirt before 8.6 does not list the versions; Nova then assumes both, too.
        versions = tuple(iter_enum(tpm, "backendVersion")) or tuple(_TPM_VERSIONS)
        names = [_TPM_MODELS.get(model) for model in iter_enum(tpm, "model")]
        names += [_TPM_VERSIONS.get(version) for version in versions]
        found |= {f"COMPUTE_SECURITY_TPM_{name}" for name in names if name is not None}
    if document.find("features/sev[@supported='yes']") is not None:
        found.add("HW_CPU_X86_AMD_SEV")
    if document.find("features/sgx[@supported='yes']") is not None:
        found.add("HW_CPU_X86_SGX")
    return found
