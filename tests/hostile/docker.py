"""Feed a Docker driver answers of which one value, or all of one, is hostile."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodetracker.accounting.audit.view import account
from nodetracker.model.errors import HostDataError
from nodetracker.model.guest import Guest, GuestListing, PartialGuest
from nodetracker.model.node import NodeView
from nodetracker.model.settings import Policy
from nodetracker.virt.docker.driver import DockerDriver
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.plugin import DriverEnvironment
from tests.builders import NOW
from tests.engine_stub import INFO, VERSION, describe_container
from tests.hostile.values import Place, find, has_other_type, spoil
from tests.hosts.captures import unpack
from tests.probes import InlineProbeRunner

HERE = Path(__file__).parents[1] / "hosts"


IDS = [str(number) * 64 for number in range(1, 5)]


def make_answers() -> dict[str, Any]:
    """Return an engine's answers: path -> document."""
    full = describe_container(
        2,
        CpuQuota=150_000,
        CpuPeriod=100_000,
        CpuShares=512,
        CpusetCpus="1-3",
        CpusetMems="0",
        NanoCpus=0,
        StorageOpt={"size": "10G"},
        RestartPolicy={"Name": "always", "MaximumRetryCount": 0},
        Devices=[{"PathOnHost": "/dev/vfio/1", "PathInContainer": "/dev/vfio/1"}],
        DeviceRequests=[
            {"Driver": "", "Count": 2, "DeviceIDs": None, "Capabilities": [["gpu", "utility"]]},
            {"Driver": "cdi", "Count": 0, "DeviceIDs": ["vendor.com/net=a"], "Capabilities": []},
            {"Driver": "nvidia", "Count": 0, "DeviceIDs": ["0", "GPU-1"], "Capabilities": []},
        ],
        CgroupParent="/kubepods/burstable/pod1",
        Runtime="runc",
        Annotations={"a": "b"},
    )
    full["Config"] = {
        "Image": "i",
        "Labels": {
            "nodetracker.workload": "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11",
            "nodetracker.project": "p1",
        },
        "Env": ["A=b"],
    }
    full["Mounts"] = [{"Type": "bind", "Source": "/a", "Destination": "/b"}]
    full["State"] |= {"ExitCode": 0, "OOMKilled": False, "Health": {"Status": "healthy"}}
    visible = describe_container(3, Runtime="nvidia", CpusetCpus="5")
    visible["Config"]["Env"] = ["NVIDIA_VISIBLE_DEVICES=1"]
    ended = describe_container(4, RestartPolicy={"Name": "always"}, Memory=32 << 20)
    ended["State"] = {"Status": "exited", "ExitCode": 1, "Pid": 0}
    described = {}
    for number, item in enumerate((describe_container(1), full, visible, ended)):
        item["Id"] = IDS[number]
        described[item["Id"]] = item
    return {
        "info": INFO,
        "version": VERSION,
        "df": {"LayersSize": 5 << 20, "Images": [{"Size": 9}]},
        "list": [
            {
                "Id": key,
                "Names": [item["Name"]],
                "State": item["State"]["Status"],
                "Status": "Up 2 minutes (healthy)",
                "Labels": dict(item["Config"]["Labels"]),
            }
            for key, item in described.items()
        ],
        "statistics": {
            key: {
                "cpu_stats": {"cpu_usage": {"total_usage": 5}},
                "memory_stats": {"usage": 9 << 20, "stats": {"inactive_file": 1 << 20}},
            }
            for key in described
        },
        "containers": described,
    }


class Engine:
    """An engine without a socket, with answers that may be anything."""

    source = "unix:///engine.sock"

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    def ping(self) -> Any:
        return "OK"

    def version(self) -> Any:
        return self.answers["version"]

    def info(self) -> Any:
        return self.answers["info"]

    def list_containers(self) -> Any:
        return self.answers["list"]

    def inspect_container(self, container_id: str) -> Any:
        found = self.answers["containers"]
        if not isinstance(found, dict) or container_id not in found:
            raise HostDataError(self.source, "answered 400: invalid id")
        return found[container_id]

    def get_statistics(self, container_id: str) -> Any:
        found = self.answers["statistics"]
        return found.get(container_id) if isinstance(found, dict) else found

    def get_disk_usage(self) -> Any:
        return self.answers["df"]

    def close(self) -> None: ...


class DockerHost:
    """A captured machine with an engine of four containers."""

    def __init__(self, folder: Path) -> None:
        name = "8amd64-1pa2n2c2t-sriov"
        unpack(HERE / f"{name}.tar.xz", folder)
        root = folder / name
        (root / "var/lib/docker").mkdir(parents=True, exist_ok=True)
        self._environment = DriverEnvironment(
            "host-1",
            str(folder),
            Roots(root / "proc", root / "sys", root, is_captured=True),
            InlineProbeRunner(5),
        )
        self.answers = make_answers()
        self.good, listing = self.read(self.answers)
        self.guests = listing.guests
        assert len(self.guests) == len(self.answers["list"])

    def read(
        self, answers: dict[str, Any], *, knows_good: bool = False
    ) -> tuple[NodeView, GuestListing | str]:
        """Read the engine; return the row as it is then, and the guests or why there are none."""
        engine = Engine(self.answers if knows_good else answers)
        driver = DockerDriver(self._environment, engine)  # type: ignore[arg-type]
        if knows_good:
            driver.get_available_resource("host-1")
            engine.answers = answers
        snapshot = driver.get_available_resource("host-1")
        driver.get_available_resource("host-1")
        view = account(snapshot, None, Policy(), NOW)
        return view, snapshot.guests.value or str(snapshot.guests.error)

    def find_faults(self, path: Place, value: Any) -> Iterator[str]:
        """Yield what is wrong when one place of the answers has another value.

        A value of another type is named, or means what the right one did; no value changes
        what other containers count.
        """
        answers = spoil(self.answers, path, value)
        is_wrong = has_other_type(find(self.answers, path), value)
        for knows_good in (False, True):
            view, listing = self.read(answers, knows_good=knows_good)
            if isinstance(listing, str):
                if path[0] != "list" or "containers/json" not in listing:
                    yield f"no guests: {listing}"
                continue
            warned = repr(set(view.warnings) - set(self.good.warnings))
            spoiled = self._find_spoiled(path)
            for guest in self.guests:
                other = _find_guest(guest, listing)
                if guest.details["container_id"] not in (spoiled or guest.details["container_id"]):
                    if counts(other) != counts(guest):
                        yield f"another container, {guest.name}, changed: {other}"
                elif is_wrong:
                    yield from _compare(guest, other, listing, warned)

    def _find_spoiled(self, path: Place) -> str:
        """Return the id of the container that a path belongs to, "" for no certain one."""
        if path[0] in ("containers", "statistics") and len(path) > 1:
            return str(path[1])
        if path[0] == "list" and len(path) > 1:
            return str(self.answers["list"][path[1]]["Id"])
        return ""


def _find_guest(good: Guest, listing: GuestListing) -> Guest | PartialGuest | None:
    """Return a guest as it is now; one whose label was not read has another uuid."""
    own = good.details["container_id"]
    return next(
        (
            guest
            for guest in listing.all_guests
            if guest.uuid == good.uuid
            or guest.name in (good.name, own[:12])
            or (guest.details or {}).get("container_id") == own
        ),
        None,
    )


def _compare(
    good: Guest, now: Guest | PartialGuest | None, listing: GuestListing, warned: str
) -> Iterator[str]:
    """Yield what is wrong with a guest of which a value has another type."""
    name, own = good.name, good.details["container_id"][:12]
    if now is None:
        if not listing.unreadable:
            yield f"{name} is not counted"
    elif isinstance(now, PartialGuest):
        if not now.problem.startswith((f"container {name}: ", f"container {own}: ")):
            yield f"{name} is not named: {now.problem!r}"
    elif counts(now) != counts(good) and name not in warned:
        yield f"{name} counts something else, and nothing says why: {counts(now)}"


def counts(guest: Guest | PartialGuest | None) -> Any:
    """Return what a guest counts."""
    if guest is None:
        return None
    return (
        guest.uuid, guest.vcpu_milli, guest.memory_mb, guest.disk_mb, guest.project_id, guest.pins,
        guest.power_state,
    )  # fmt: skip
