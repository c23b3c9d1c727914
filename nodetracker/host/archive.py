"""A capture as a tar archive, which appears whole or not at all."""

import io
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Literal

from nodetracker.errors import HostDataError, RefusedError
from nodetracker.host.capture import Capture
from nodetracker.host.roots import describe_os_error

_Mode = Literal["w:", "w:gz", "w:bz2", "w:xz"]

ENDINGS: dict[str, _Mode] = {
    ".tar": "w:",
    ".tar.gz": "w:gz",
    ".tgz": "w:gz",
    ".tar.bz2": "w:bz2",
    ".tar.xz": "w:xz",
}
"""How the archive's name ends -> how `tarfile` writes it."""


def name_folder(path: Path) -> str:
    """Return the folder that an archive holds: the file's name without its ending.

    Raises:
        RefusedError: the name has no ending of `ENDINGS`, or nothing before it.
    """
    folder = path.name.removesuffix(_find_ending(path))
    if not folder.strip("."):
        raise RefusedError(f"{path}: there is no name before the ending")
    return folder


def write_archive(capture: Capture, path: Path, is_forced: bool, at: float) -> int:
    """Write a capture to a file that its owner alone may read; return its size in bytes.

    Args:
        is_forced: a file that is there already is replaced.
        at: the time that its entries are given, in seconds since 1970.

    Raises:
        RefusedError: see `name_folder`; or the file is there already.
        HostDataError: it cannot be written; nothing is left of it.
    """
    data = _render(capture, name_folder(path), ENDINGS[_find_ending(path)], at)
    try:
        _place(data, path, is_forced)
    except FileExistsError:
        raise RefusedError(f"{path} is there already; --force replaces it") from None
    except OSError as error:
        raise HostDataError(str(path), describe_os_error(error)) from error
    return len(data)


def _find_ending(path: Path) -> str:
    for ending in ENDINGS:
        if path.name.endswith(ending):
            return ending
    raise RefusedError(f"{path}: does not end in {', '.join(ENDINGS)}")


def _render(capture: Capture, folder: str, mode: _Mode, at: float) -> bytes:
    """Return the archive's bytes; its entries are in order, each folder before what it holds."""
    names = {*capture.files, *capture.links, *capture.folders}
    names |= {name[:length] for name in names for length in range(len(name))}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=tarfile.GNU_FORMAT) as archive:
        for name in sorted(names):
            entry = tarfile.TarInfo("/".join((folder, *name)))
            entry.mtime, entry.uname, entry.gname = int(at), "root", "root"
            data = b""
            if name in capture.files:
                data = capture.files[name]
                entry.size, entry.mode = len(data), 0o644
            elif name in capture.links:
                entry.type, entry.linkname = tarfile.SYMTYPE, capture.links[name]
                entry.mode = 0o777
            else:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _place(data: bytes, path: Path, is_forced: bool) -> None:
    """Write a file beside its place and move it there.

    Raises:
        FileExistsError: something is there already and is not to be replaced.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".capture-")
    temporary = Path(name)
    is_reserved = False
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        if not is_forced:
            path.touch(mode=0o600, exist_ok=False)
            is_reserved = True
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        if is_reserved:
            path.unlink(missing_ok=True)
        raise
