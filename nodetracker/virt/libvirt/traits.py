"""Derive standard placement traits from the features of processor and emulator."""

from collections.abc import Iterable
from xml.etree.ElementTree import Element

from nodetracker.virt.libvirt.xml import iter_enum

# libvirt's name of the feature -> suffix of os-traits' HW_CPU_X86_*.
_CPU_FEATURES = {
    "3dnow": "3DNOW", "abm": "ABM", "aes": "AESNI", "avx": "AVX", "avx2": "AVX2",
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

# Source: os-traits, COMPUTE_*.
_DISK_BUSES = {
    "fdc", "ide", "lxc", "sata", "scsi", "usb", "uml", "virtio", "xen",
}  # fmt: skip
_VIDEO_MODELS = {
    "bochs", "cirrus", "gop", "none", "qxl", "vga", "virtio", "vmvga", "xen",
}  # fmt: skip
_TPM_MODELS = {"tpm-tis": "TIS", "tpm-crb": "CRB"}


def derive_traits(
    features: Iterable[str], threads: int, domain_capabilities: Element | None
) -> tuple[str, ...]:
    """Return the standard traits of a host, in ascending order.

    Args:
        features: of its processor, in libvirt's names.
        threads: maximum number of threads per core.
        domain_capabilities: None if the hypervisor does not support that document.
    """
    found = {f"HW_CPU_X86_{_CPU_FEATURES[name]}" for name in features if name in _CPU_FEATURES}
    if threads > 1:
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
        found |= {
            f"COMPUTE_SECURITY_TPM_{_TPM_MODELS[model]}"
            for model in iter_enum(tpm, "model")
            if model in _TPM_MODELS
        }
    if document.find("features/sev[@supported='yes']") is not None:
        found.add("HW_CPU_X86_AMD_SEV")
    if document.find("features/sgx[@supported='yes']") is not None:
        found.add("HW_CPU_X86_SGX")
    return found
