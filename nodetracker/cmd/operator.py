"""Name the person who runs a command."""

import os
import pwd
import socket
from collections.abc import Callable


def read_operator(read_login: Callable[[], str] = os.getlogin) -> str:
    """Return ``user@host`` of this process, for the record of a change.

    The login name survives su and sudo. Without a login session, as in a unit or a
    container, it is the user of the process.

    Args:
        read_login: raises OSError where there is no login session.
    """
    try:
        name = read_login()
    except OSError:
        name = _read_user()
    return f"{name}@{socket.gethostname()}"


def _read_user() -> str:
    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
