"""Traits of processor and emulator."""

import pytest

from nodetracker.model.host import CpuInfo
from nodetracker.virt.libvirt.features import derive_traits
from nodetracker.virt.libvirt.xml import parse_document

DOCUMENT = """<domainCapabilities><devices>
  <disk supported='yes'><enum name='bus'><value>virtio</value><value>odd</value></enum></disk>
  <video supported='yes'><enum name='modelType'><value>vga</value></enum></video>
  <tpm supported='yes'><enum name='model'><value>tpm-crb</value></enum>
    <enum name='backendModel'><value>passthrough</value>{}</enum>{}</tpm>
</devices><features><sev supported='{}'/></features></domainCapabilities>"""


def cpu(*features, threads=1, architecture=""):
    return CpuInfo(frozenset({0}), threads=threads, architecture=architecture, flags=features)


def traits_of_emulator(emulator="", versions="", sev="no"):
    document = parse_document(
        DOCUMENT.format(emulator, versions, sev), "domainCapabilities", "test"
    )
    return derive_traits(cpu(), (), document)


def test_known_features_have_traits_and_others_do_not():
    assert derive_traits(cpu("avx2", "aes", "odd", threads=2), (), None) == (
        "HW_CPU_HYPERTHREADING",
        "HW_CPU_X86_AESNI",
        "HW_CPU_X86_AVX2",
    )


@pytest.mark.parametrize(
    ("feature", "traits"),
    [
        ("svm", ("HW_CPU_X86_AMD_SVM", "HW_CPU_X86_SVM")),
        ("vmx", ("HW_CPU_X86_INTEL_VMX", "HW_CPU_X86_VMX")),
        ("amx-bf16", ("HW_CPU_X86_AMXBF16",)),
        ("amx-int8", ("HW_CPU_X86_AMXINT8",)),
        ("amx-tile", ("HW_CPU_X86_AMXTILE",)),
    ],
)
def test_a_feature_has_all_of_its_traits(feature, traits):
    assert derive_traits(cpu(feature), (), None) == traits


def test_architectures_of_the_host_and_of_guests_have_traits_if_they_are_standard():
    guests = [
        ("x86_64", "kvm", "hvm"), ("x86_64", "qemu", "hvm"), ("i686", "qemu", "hvm"),
        ("aarch64", "qemu", "hvm"),
    ]  # fmt: skip
    assert derive_traits(cpu(architecture="x86_64"), guests, None) == (
        "COMPUTE_ARCH_AARCH64", "COMPUTE_ARCH_X86_64", "HW_ARCH_X86_64",
    )  # fmt: skip
    assert derive_traits(cpu(architecture="loongarch64"), (), None) == ()


def test_traits_of_the_emulator():
    assert traits_of_emulator() == ("COMPUTE_GRAPHICS_MODEL_VGA", "COMPUTE_STORAGE_BUS_VIRTIO")
    assert "COMPUTE_SECURITY_TPM_CRB" in traits_of_emulator("<value>emulator</value>")
    assert "HW_CPU_X86_AMD_SEV" in traits_of_emulator(sev="yes")


@pytest.mark.parametrize(
    ("versions", "traits"),
    [
        (
            "<enum name='backendVersion'><value>2.0</value><value>9</value></enum>",
            {"COMPUTE_SECURITY_TPM_2_0"},
        ),
        # libvirt before 8.6 does not list them; its emulator has both.
        ("", {"COMPUTE_SECURITY_TPM_1_2", "COMPUTE_SECURITY_TPM_2_0"}),
    ],
    ids=["listed", "not listed"],
)
def test_versions_of_the_emulated_tpm_have_traits(versions, traits):
    found = traits_of_emulator("<value>emulator</value>", versions)
    assert {name for name in found if "TPM" in name} == {"COMPUTE_SECURITY_TPM_CRB"} | traits
