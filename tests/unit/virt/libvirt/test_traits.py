"""Traits of processor and emulator."""

from nodetracker.virt.libvirt.traits import derive_traits
from nodetracker.virt.libvirt.xml import parse_document

DOCUMENT = """<domainCapabilities><devices>
  <disk supported='yes'><enum name='bus'><value>virtio</value><value>odd</value></enum></disk>
  <video supported='yes'><enum name='modelType'><value>vga</value></enum></video>
  <tpm supported='yes'><enum name='model'><value>tpm-crb</value></enum>
    <enum name='backendModel'><value>passthrough</value>{}</enum></tpm>
</devices><features><sev supported='{}'/></features></domainCapabilities>"""


def traits(features=(), threads=1, emulator="", sev="no"):
    text = DOCUMENT.format(emulator, sev)
    return derive_traits(features, threads, parse_document(text, "domainCapabilities", "x"))


def test_known_features_have_traits_and_others_do_not():
    assert derive_traits(["avx2", "aes", "odd"], 2, None) == (
        "HW_CPU_HYPERTHREADING",
        "HW_CPU_X86_AESNI",
        "HW_CPU_X86_AVX2",
    )


def test_traits_of_the_emulator():
    assert traits() == ("COMPUTE_GRAPHICS_MODEL_VGA", "COMPUTE_STORAGE_BUS_VIRTIO")
    assert "COMPUTE_SECURITY_TPM_CRB" in traits(emulator="<value>emulator</value>")
    assert "HW_CPU_X86_AMD_SEV" in traits(sev="yes")
