"""The captured machines of this folder."""

import tarfile
from pathlib import Path

HERE = Path(__file__).parent
CAPTURES = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a captured machine into a folder, on every Python that the project supports.

    Python 3.11.2 (Debian 12) has no filters: ``extractall`` takes none, and ignores this
    attribute. Links may point anywhere in name, as sysfs has such; nothing is written outside.
    """
    with tarfile.open(archive) as members:
        members.extraction_filter = _keep_inside
        members.extractall(folder)


def _keep_inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    try:
        return tarfile.data_filter(member, folder)
    except (tarfile.AbsoluteLinkError, tarfile.LinkOutsideDestinationError):
        return tarfile.tar_filter(member, folder)


REPOSITORY = Path(__file__).parents[2]
SHARED_HOSTS = REPOSITORY.parent / "shared" / "hosts"
SHARED_ARCHIVES = sorted(SHARED_HOSTS.glob("*.tar.bz2"))
OWN_ARCHIVES = sorted((REPOSITORY / "tests" / "hosts").glob("*.tar.xz"))


def find_root(folder: Path) -> Path:
    """Return the directory of an unpacked machine that holds ``sys``."""
    return next(path.parent for path in (folder / "sys", *folder.glob("*/sys")) if path.is_dir())


def name_archive(path: Path) -> str:
    return path.name.partition(".")[0]
