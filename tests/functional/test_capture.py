"""`host capture`: what an operator attaches to a bug report is read again as the host was."""

import tarfile
from pathlib import Path

import pytest

from tests.hosts.captures import CAPTURES, HERE, unpack
from tests.programs import Programs

COLUMNS = (
    "vcpus", "memory_mb", "cpu_info", "numa_topology", "pci_stats", "disks", "gpus", "system",
    "architecture", "os", "kernel_version", "booted_at",
)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A captured machine, unpacked."""
    name = CAPTURES[0]
    unpack(HERE / f"{name}.tar.xz", tmp_path)
    return tmp_path / name


def audit(directory: Path, root: Path) -> dict:
    """Return the row of the machine below a root."""
    directory.mkdir()
    programs = programs_of(directory, root)
    programs.make_schema()
    assert programs.run("nodetracker-compute", "--once").returncode == 0
    (node,) = programs.ask("node", "list")
    row = programs.ask("node", "show", node["host"])
    return {name: row[name] for name in COLUMNS}


def programs_of(directory: Path, root: Path) -> Programs:
    programs = Programs(directory)
    programs.configure(
        f"[host]\nprocfs = {root}/proc\nsysfs = {root}/sys\nrootfs = {root}", driver="local"
    )
    return programs


def test_a_capture_gives_the_row_that_its_host_gives(tmp_path: Path, root: Path) -> None:
    programs = programs_of(tmp_path, root)
    archive = tmp_path / "bug-17.tar.xz"
    done = programs.manage("host", "capture", str(archive))
    assert (done.returncode, done.stderr) == (0, "")
    with tarfile.open(archive) as opened:
        files = sum(member.isfile() for member in opened)
        links = sum(member.issym() for member in opened)
    unpack(archive, tmp_path)
    assert done.stdout == (
        f"{archive}: {files} files and {links} links in the folder bug-17, "
        f"{archive.stat().st_size} bytes\n"
    )
    original, again = audit(tmp_path / "one", root), audit(tmp_path / "two", tmp_path / "bug-17")
    assert again == original


def test_what_is_not_in_a_capture_is_named(tmp_path: Path, root: Path) -> None:
    path = root / "proc" / "meminfo"
    path.unlink()
    path.mkdir()
    done = programs_of(tmp_path, root).manage("host", "capture", str(tmp_path / "x.tar"))
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == [f"not readable, left out: {path}: Is a directory"]


def test_a_file_that_is_there_stays_unless_it_is_to_be_replaced(tmp_path: Path, root: Path) -> None:
    programs, archive = programs_of(tmp_path, root), tmp_path / "host.tar.gz"
    archive.write_text("mine")
    done = programs.manage("host", "capture", str(archive))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{archive} already exists; use --force to replace it\n"
    assert archive.read_text() == "mine"
    assert programs.manage("host", "capture", str(archive), "--force").returncode == 0
    assert tarfile.is_tarfile(archive)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ([], 2, "required: FILE"),
        (
            ["x.zip"],
            1,
            "x.zip: unknown suffix: expected one of .tar, .tar.gz, .tgz, .tar.bz2, .tar.xz",
        ),
        (["/no/such/folder/x.tar"], 1, "/no/such/folder/x.tar: No such file or directory"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    tmp_path: Path, root: Path, arguments: list[str], code: int, text: str
) -> None:
    done = programs_of(tmp_path, root).manage("host", "capture", *arguments)
    assert done.returncode == code
    assert text in done.stderr.splitlines()[-1]
