"""Commands on users of the REST API: set, delete and list."""

import argparse
import getpass
import sys
from collections.abc import Callable
from pathlib import Path

from nodetracker.api.auth.users import (
    UserFile,
    delete_user,
    edit_user_file,
    hash_password,
    is_user_name,
    parse_user_file,
    read_user_file,
    set_user,
)
from nodetracker.api.context import ADMIN_ROLE, READER_ROLE
from nodetracker.cmd.commands.base import ListCommand, StoreCommand, argument
from nodetracker.model.errors import NotFoundError, RefusedError
from nodetracker.model.text import render_file_error


class UserCommand(StoreCommand):
    """Mixin of commands that use the user file."""

    @property
    def path(self) -> Path:
        """The user file."""
        return Path(self.app.conf.api.http_basic_auth_user_file)

    def role_of(self, name: str) -> str:
        """Return a user's role under ``auth_strategy = http_basic``."""
        return ADMIN_ROLE if name in self.app.conf.api.http_basic_admins else READER_ROLE

    def edit(self, change: Callable[[str], str]) -> None:
        """Replace the file by a changed one.

        Raises:
            RefusedError: it cannot be read or replaced.
        """
        try:
            edit_user_file(self.path, change)
        except (OSError, UnicodeError) as error:
            reason = render_file_error(error)
            raise RefusedError(
                f"{self.path} cannot be changed: {reason} "
                "([api] http_basic_auth_user_file names it)"
            ) from error

    def parse(self, text: str) -> UserFile:
        """Parse the file, and print its problems."""
        users = parse_user_file(text)
        for problem in users.problems:
            self.app.stderr.write(f"{self.path}: {problem}; the line is ignored\n")
        return users


class SetUser(UserCommand):
    details = """
    The password is read from the terminal, or from the first line of the
    standard input. Users in [api] http_basic_admins administer, others read.
    """
    example = "user set alice"
    arguments = (argument("name", help="Name of the user."),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        name: str = parsed_args.name
        if not is_user_name(name):
            raise RefusedError(
                f"invalid user name {name!r}: expected up to 255 printable characters "
                "without blanks, ':' and '#'"
            )
        try:
            password_hash = hash_password(_read_password(name))
        except ValueError as error:
            raise RefusedError(str(error)) from None
        self.edit(lambda text: set_user(text, name, password_hash))
        self.app.stdout.write(f"password of user {name} set; role {self.role_of(name)}\n")


class DeleteUser(UserCommand):
    example = "user delete alice"
    arguments = (argument("name", help="As user list shows it."),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        name: str = parsed_args.name

        def delete(text: str) -> str:
            if name not in self.parse(text).hashes:
                raise NotFoundError(f"no such user: {name}")
            return delete_user(text, name)

        self.edit(delete)
        self.app.stdout.write(f"user {name} deleted\n")


class ListUsers(UserCommand, ListCommand):
    example = "user list"
    columns = ("name", "role")

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, str]]:
        try:
            users = self.parse(read_user_file(self.path))
        except (OSError, UnicodeError) as error:
            reason = render_file_error(error)
            raise RefusedError(f"{self.path} cannot be read: {reason}") from error
        return [{"name": name, "role": self.role_of(name)} for name in sorted(users.hashes)]


def _read_password(name: str) -> str:
    """Return the password from the terminal, typed twice, or from the standard input.

    Raises:
        ValueError: both differ, or it is not valid UTF-8.
    """
    if sys.stdin.isatty():
        password = getpass.getpass(f"Password of {name}: ")
        if getpass.getpass("Again: ") != password:
            raise ValueError("the passwords differ")
        return password
    line = sys.stdin.buffer.readline()
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        raise ValueError("the password is not valid UTF-8") from None
