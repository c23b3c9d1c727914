"""Test reading GPUs from PCI and NVML."""

import time
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from host_tree import MakeRoots
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.model.errors import HostDataError
from nodetracker.model.host import Gpu
from nodetracker.model.pci import PciDevice, PciDeviceType
from nodetracker.virt.host import gpu as gpu_module
from nodetracker.virt.host.gpu import is_gpu, parse_nvml_address, read_gpus
from nodetracker.virt.host.roots import Roots

H200 = PciDevice("0000:5e:00.0", "10de", "2335", class_id="030200", numa_node=1)
KNOWN_BY_PCI = Gpu("0000:5e:00.0", "NVIDIA", "10de:2335", numa_node=1)
KNOWN_BY_NVML = Gpu(
    "0000:5e:00.0",
    "NVIDIA",
    "NVIDIA H200",
    memory_mb=143771,
    uuid="GPU-1",
    driver_version="570.86",
    numa_node=1,
    mig_uuids=("MIG-1",),
)


class FakeNvmlError(Exception):
    """Replaces pynvml.NVMLError."""


class FakeNotSupportedError(FakeNvmlError):
    """Replaces pynvml.NVMLError_NotSupported."""


class FakeFunctionNotFoundError(FakeNvmlError):
    """Replaces pynvml.NVMLError_FunctionNotFound."""


class FakeNotFoundError(FakeNvmlError):
    """Replaces pynvml.NVMLError_NotFound."""


class FakeInvalidArgumentError(FakeNvmlError):
    """Replaces pynvml.NVMLError_InvalidArgument."""


@dataclass
class FakeNvml:
    """NVIDIA's library with as many devices as bus ids; calls named in `broken` fail."""

    bus_ids: tuple[str | bytes, ...] = ("00000000:5E:00.0",)
    broken: frozenset[str] = frozenset()
    strings_are_bytes: bool = False
    opened: int = 0
    error: type[Exception] = FakeNvmlError  # of the calls in `broken`
    mig_mode: tuple[int, int] = (1, 1)  # current and pending
    mig_devices: int = 1
    NVML_DEVICE_MIG_ENABLE: int = 1
    NVMLError: type[Exception] = field(default=FakeNvmlError)
    NVMLError_NotSupported: type[Exception] = field(default=FakeNotSupportedError)
    NVMLError_FunctionNotFound: type[Exception] = field(default=FakeFunctionNotFoundError)
    NVMLError_NotFound: type[Exception] = field(default=FakeNotFoundError)
    NVMLError_InvalidArgument: type[Exception] = field(default=FakeInvalidArgumentError)

    def nvmlInit(self) -> None:  # noqa: N802
        self._call("nvmlInit")
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.opened -= 1
        self._call("nvmlShutdown")

    def nvmlSystemGetDriverVersion(self) -> str | bytes:  # noqa: N802
        self._call("nvmlSystemGetDriverVersion")
        return self._string("570.86")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._call("nvmlDeviceGetCount")
        return len(self.bus_ids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        self._call("nvmlDeviceGetHandleByIndex")
        return index

    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any:  # noqa: N802
        self._call("nvmlDeviceGetPciInfo")
        return SimpleNamespace(busId=self.bus_ids[handle])

    def nvmlDeviceGetName(self, handle: Any) -> str | bytes:  # noqa: N802
        self._call("nvmlDeviceGetName")
        return self._string("NVIDIA H200")

    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes:  # noqa: N802
        self._call("nvmlDeviceGetUUID")
        return self._string("MIG-1" if handle == "MIG" else f"GPU-{handle + 1}")

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:  # noqa: N802
        self._call("nvmlDeviceGetMemoryInfo")
        return SimpleNamespace(total=143771 * 2**20)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:  # noqa: N802
        self._call("nvmlDeviceGetMaxMigDeviceCount")
        return 2

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any:  # noqa: N802
        self._call("nvmlDeviceGetMigDeviceHandleByIndex")
        if index >= self.mig_devices:
            raise FakeNotFoundError
        return "MIG"

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:  # noqa: N802
        self._call("nvmlDeviceGetMigMode")
        return list(self.mig_mode)

    def _call(self, name: str) -> None:
        if name in self.broken:
            raise self.error(name)

    def _string(self, text: str) -> str | bytes:
        return text.encode() if self.strings_are_bytes else text


@pytest.mark.parametrize(
    ("vendor_id", "class_id", "expected"),
    [
        ("10de", "030200", True),
        ("10de", "030000", True),
        ("1002", "038000", True),
        ("1002", "120000", True),
        ("8086", "030000", True),
        ("102b", "030000", False),
        ("1234", "030000", False),
        ("1d17", "038000", True),
        ("10de", "040300", False),
        ("8086", "120000", False),
        ("10de", "", False),
    ],
    ids=[
        "compute",
        "desktop",
        "mi200",
        "mi300",
        "intel",
        "console",
        "qemu",
        "other-vendor",
        "audio",
        "npu",
        "no-class",
    ],
)
def test_a_gpu_is_identified_by_class_and_vendor(
    vendor_id: str, class_id: str, expected: bool
) -> None:
    assert is_gpu(PciDevice("0000:01:00.0", vendor_id, "0001", class_id=class_id)) is expected


def test_a_share_of_a_gpu_is_not_a_gpu() -> None:
    share = PciDevice("0000:5e:00.4", "10de", "2335", "030200", PciDeviceType.VF)
    assert not is_gpu(share)


def test_nvml_provides_name_memory_and_driver(make_roots: MakeRoots) -> None:
    nvml = FakeNvml()
    assert read_gpus(make_roots(), (H200,), nvml) == (KNOWN_BY_NVML,)
    assert nvml.opened == 0


def test_strings_of_older_libraries_are_bytes(make_roots: MakeRoots) -> None:
    nvml = FakeNvml(bus_ids=(b"00000000:5E:00.0",), strings_are_bytes=True)
    assert read_gpus(make_roots(), (H200,), nvml) == (KNOWN_BY_NVML,)


@pytest.mark.parametrize(
    "call",
    [
        "nvmlInit",
        "nvmlSystemGetDriverVersion",
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetName",
        "nvmlDeviceGetUUID",
    ],
)
def test_a_failing_library_leaves_the_data_of_pci(call: str, make_roots: MakeRoots) -> None:
    nvml = FakeNvml(broken=frozenset({call}))
    (gpu,) = read_gpus(make_roots(), (H200,), nvml)
    assert gpu == replace(KNOWN_BY_PCI, problem=call)
    assert nvml.opened == 0


def test_a_gpu_that_does_not_answer_leaves_the_others(make_roots: MakeRoots) -> None:
    lost = replace(H200, address="0000:3b:00.0", driver="nvidia")
    passed = replace(H200, address="0000:9e:00.0", driver="vfio-pci")
    found = read_gpus(make_roots(), (lost, H200, passed), FakeNvml())
    assert [(gpu.uuid, gpu.problem) for gpu in found] == [
        ("", "does not list the GPU"), ("GPU-1", ""), ("", ""),
    ]  # fmt: skip


def test_a_failure_is_not_taken_for_no_gpu(make_roots: MakeRoots) -> None:
    with pytest.raises(HostDataError, match="nvmlInit"):
        read_gpus(make_roots(), (), FakeNvml(broken=frozenset({"nvmlInit"})))


@pytest.mark.parametrize("product", ["515e", "5969", "4752", "5159"])
def test_a_server_s_console_chip_is_no_gpu(product: str) -> None:
    assert not is_gpu(PciDevice("0000:0e:0d.0", "1002", product, "030000", driver="radeon"))


@pytest.mark.parametrize("vendor", ["1a03", "102b", "1af4", "1234"])
def test_a_console_s_vendor_makes_no_gpus_of_any_class(vendor: str) -> None:
    assert not is_gpu(PciDevice("0000:0e:0d.0", vendor, "0001", "038000"))


def test_results_are_kept_when_the_library_cannot_be_closed(make_roots: MakeRoots) -> None:
    nvml = FakeNvml(broken=frozenset({"nvmlShutdown"}))
    assert read_gpus(make_roots(), (H200,), nvml) == (KNOWN_BY_NVML,)


@pytest.mark.parametrize(
    ("call", "error", "lacking"),
    [
        ("nvmlDeviceGetMemoryInfo", FakeNotSupportedError, {"memory_mb": 0}),
        ("nvmlDeviceGetMaxMigDeviceCount", FakeNotSupportedError, {"mig_uuids": ()}),
        ("nvmlDeviceGetMaxMigDeviceCount", FakeFunctionNotFoundError, {"mig_uuids": ()}),
        ("nvmlDeviceGetMigDeviceHandleByIndex", FakeNotSupportedError, {"mig_uuids": ()}),
        ("nvmlDeviceGetMigDeviceHandleByIndex", FakeInvalidArgumentError, {"mig_uuids": ()}),
    ],
)
def test_a_gpu_lacks_what_it_does_not_have(
    call: str, error: type[Exception], lacking: dict[str, Any], make_roots: MakeRoots
) -> None:
    nvml = FakeNvml(broken=frozenset({call}), error=error, mig_mode=(0, 0))
    assert read_gpus(make_roots(), (H200,), nvml) == (replace(KNOWN_BY_NVML, **lacking),)


NO_PARTS = "is in MIG mode without MIG devices, so nothing can compute on it"


@pytest.mark.parametrize(
    ("mode", "devices", "expected"),
    [
        ((0, 0), 0, ""),
        ((0, 1), 0, ""),
        ((1, 1), 0, NO_PARTS),
        ((1, 0), 0, NO_PARTS),
        ((1, 1), 1, ""),
    ],
    ids=["whole", "divided from its next reset", "no parts", "whole from its reset", "parts"],
)
def test_a_gpu_in_mig_mode_without_parts_has_a_problem(
    mode: tuple[int, int], devices: int, expected: str, make_roots: MakeRoots
) -> None:
    nvml = FakeNvml(mig_mode=mode, mig_devices=devices)
    uuids = KNOWN_BY_NVML.mig_uuids[:devices]
    found = replace(KNOWN_BY_NVML, mig_uuids=uuids, problem=expected)
    assert read_gpus(make_roots(), (H200,), nvml) == (found,)


@pytest.mark.parametrize("error", [FakeNotSupportedError, FakeFunctionNotFoundError])
def test_a_gpu_without_mig_mode_is_whole(error: type[Exception], make_roots: MakeRoots) -> None:
    nvml = FakeNvml(broken=frozenset({"nvmlDeviceGetMigMode"}), error=error, mig_devices=0)
    assert read_gpus(make_roots(), (H200,), nvml) == (replace(KNOWN_BY_NVML, mig_uuids=()),)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("", replace(KNOWN_BY_NVML, mig_uuids=())),
        ("nvmlDeviceGetMemoryInfo", replace(KNOWN_BY_PCI, problem="nvmlDeviceGetMemoryInfo")),
    ],
)
def test_an_old_library_lacks_calls_and_errors(
    call: str, expected: Gpu, make_roots: MakeRoots
) -> None:
    nvml = FakeNvml(broken=frozenset({call}))
    known = {name: getattr(nvml, name) for name in dir(nvml) if name.startswith(("nvml", "NVML"))}
    old = {
        name: value
        for name, value in known.items()
        if "Mig" not in name and not name.startswith("NVMLError_")
    }
    assert read_gpus(make_roots(), (H200,), SimpleNamespace(**old)) == (expected,)


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex",
    ],
)
def test_a_gpu_that_fails_in_part_has_a_problem(call: str, make_roots: MakeRoots) -> None:
    """It may be lost; without its memory and its parts it would look smaller, or undivided."""
    nvml = FakeNvml(broken=frozenset({call}))
    assert read_gpus(make_roots(), (H200,), nvml) == (replace(KNOWN_BY_PCI, problem=call),)


def test_a_gpu_that_pci_does_not_show_is_reported_by_nvml(make_roots: MakeRoots) -> None:
    nvml = FakeNvml(bus_ids=("00010000:01:00.0", "00000000:5E:00.0", "garbage"))
    gpus = read_gpus(make_roots(), (H200,), nvml)
    assert [gpu.address for gpu in gpus] == ["0000:5e:00.0", "10000:01:00.0"]
    assert [gpu.numa_node for gpu in gpus] == [1, None]


def test_the_library_is_not_used_for_another_machine(
    make_roots: MakeRoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_module, "_load_nvml", FakeNvml)
    roots = make_roots({"dev/nvidiactl": ""})
    assert read_gpus(roots, (H200,)) == (KNOWN_BY_PCI,)


def test_the_library_is_used_for_this_machine_only_with_a_device(
    make_roots: MakeRoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_module, "_load_nvml", FakeNvml)
    here = Roots(rootfs=make_roots().rootfs)
    assert read_gpus(here, ()) == ()
    assert read_gpus(here, (H200,)) == (KNOWN_BY_NVML,)
    make_roots({"dev/nvidiactl": ""})
    assert [gpu.name for gpu in read_gpus(here, ())] == ["NVIDIA H200"]


def test_gpus_are_in_order_of_their_addresses(make_roots: MakeRoots) -> None:
    amd = PciDevice("10000:01:00.0", "1002", "74a1", "120000")
    odd = PciDevice("0000:01:00.0", "1d17", "3d00", "038000")
    assert [gpu.vendor for gpu in read_gpus(make_roots(), (amd, H200, odd))] == [
        "1d17",
        "NVIDIA",
        "AMD",
    ]


@given(st.text() | st.from_regex(r"[0-9A-Fa-f]{3,9}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9]"))
def test_any_bus_id_is_read_or_refused(text: str) -> None:
    try:
        address = parse_nvml_address(text)
    except HostDataError:
        return
    assert parse_nvml_address(address) == address


WRONG = {
    "nvmlSystemGetDriverVersion": (None, 5),
    "nvmlDeviceGetCount": (None, -1, 2**32 - 1, "2"),
    "nvmlDeviceGetPciInfo": tuple(SimpleNamespace(busId=bus) for bus in ("", None, "9" * 5000)),
    "nvmlDeviceGetName": (None, 5),
    "nvmlDeviceGetUUID": (None, 5),
    "nvmlDeviceGetMemoryInfo": tuple(SimpleNamespace(total=n) for n in (-1, 2**64, None, "1")),
    "nvmlDeviceGetMaxMigDeviceCount": (None, -1, 2**32 - 1),
}


@pytest.mark.parametrize(
    ("call", "answer"), [(call, answer) for call, answers in WRONG.items() for answer in answers]
)
def test_a_wrong_answer_of_nvml_is_the_problem_of_its_gpu(
    call: str, answer: Any, make_roots: MakeRoots
) -> None:
    nvml = FakeNvml()
    setattr(nvml, call, lambda *_: answer)
    started_at = time.process_time()
    (gpu,) = read_gpus(make_roots(), (H200,), nvml)
    assert gpu.address == "0000:5e:00.0"
    assert gpu.problem.startswith("NVML: ")
    assert time.process_time() - started_at < 1


def test_two_gpus_of_nvml_with_one_address_are_named(make_roots: MakeRoots) -> None:
    other = replace(H200, address="0000:9e:00.0")
    nvml = FakeNvml(bus_ids=("00000000:5E:00.0",) * 2)
    problems = {gpu.address: gpu.problem for gpu in read_gpus(make_roots(), (H200, other), nvml)}
    assert problems["0000:9e:00.0"] == "NVML: lists 0000:5e:00.0 more than once"
