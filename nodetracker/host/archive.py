"""Write a capture as a tar archive, atomically."""

import io
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Literal

from nodetracker.host.capture import Capture
from nodetracker.host.roots import describe_os_error
from nodetracker.model.errors import HostDataError, RefusedError

_Mode = Literal["w:", "w:gz", "w:bz2", "w:xz"]

SUFFIXES: dict[str, _Mode] = {
    ".tar": "w:",
    ".tar.gz": "w:gz",
    ".tgz": "w:gz",
    ".tar.bz2": "w:bz2",
    ".tar.xz": "w:xz",
}
"""Suffix of the archive's name -> mode in which `tarfile` writes it."""


def name_folder(path: Path) -> str:
    """Return the top folder of an archive: the file's name without its suffix.

    Raises:
        RefusedError: the name has no suffix of `SUFFIXES`, or nothing before it.
    """
    folder = path.name.removesuffix(_find_suffix(path))
    if not folder.strip("."):
        raise RefusedError(f"{path}: the file name consists of a suffix only")
    return folder


def write_archive(capture: Capture, path: Path, is_forced: bool, at: float) -> int:
    """Write a capture to a file that only its owner may read; return its size in bytes.

    Args:
        is_forced: replace an existing file.
        at: modification time of the entries, in seconds since 1970.

    Raises:
        RefusedError: see `name_folder`; or the file already exists.
        HostDataError: the file cannot be written; no part of it is left.
    """
    data = _render(capture, name_folder(path), SUFFIXES[_find_suffix(path)], at)
    try:
        _write_file(data, path, is_forced)
    except FileExistsError:
        raise RefusedError(f"{path} already exists; use --force to replace it") from None
    except OSError as error:
        raise HostDataError(str(path), describe_os_error(error)) from error
    return len(data)


def _find_suffix(path: Path) -> str:
    for suffix in SUFFIXES:
        if path.name.endswith(suffix):
            return suffix
    raise RefusedError(f"{path}: unknown suffix: expected one of {', '.join(SUFFIXES)}")


def _render(capture: Capture, folder: str, mode: _Mode, at: float) -> bytes:
    """Return the archive's bytes; entries are sorted, each folder before its contents."""
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


def _write_file(data: bytes, path: Path, is_forced: bool) -> None:
    """Write a temporary file in the target's folder and rename it.

    Raises:
        FileExistsError: the target exists and `is_forced` is false.
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
