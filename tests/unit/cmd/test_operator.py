"""The name of the person who runs a command."""

import os
import pwd
import socket

from nodetracker.cmd.commands.service import read_operator


def test_the_login_name_counts_where_there_is_a_login_session():
    assert read_operator(lambda: "alice") == f"alice@{socket.gethostname()}"


def test_without_a_login_session_it_is_the_user_of_the_process():
    def fail() -> str:
        raise OSError(6, "No such device or address")

    name = pwd.getpwuid(os.getuid()).pw_name
    assert read_operator(fail) == f"{name}@{socket.gethostname()}"
