"""Read values of the configuration that need no settings of an agent."""

import dataclasses
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast
from urllib.parse import urlsplit

from oslo_config import cfg, types

from nodetracker.bootstrap.options.default import ABSOLUTE_PATH, DATABASE, DEFAULT
from nodetracker.bootstrap.options.opts import list_registered
from nodetracker.model.errors import ConfigError
from nodetracker.model.text import is_host_name

if TYPE_CHECKING:  # imported late, as not every program needs it
    from nodetracker.db.connection.engine import DatabaseSettings

_P = ParamSpec("_P")
_R = TypeVar("_R")

# The library's message about an invalid value; of a value with another option's, the other's.
_NOT_VALID = re.compile(
    r".*Value for option (?P<name>\S+) from .* detail='(?P<where>[^']*)'\) is not valid: "
    r"(?P<reason>.*)"
)


class Problems:
    """Collects what is wrong with values, so that one error names all of them."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._unread: Exception | None = None

    def collect(self, function: Callable[_P, _R], *positional: _P.args, **named: _P.kwargs) -> _R:
        """Return a function's result; None, and keep its problems, if a value is invalid."""
        try:
            return function(*positional, **named)
        except ConfigError as error:
            self._texts += error.problems
        except (cfg.Error, TypeError, ValueError) as error:  # of a value that `check_values` names
            self._unread = error
        return cast("_R", None)

    def add(self, text: str) -> None:
        """Keep one more."""
        self._texts.append(text)

    def raise_any(self) -> None:
        """End here if anything was wrong.

        Raises:
            ConfigError: it names everything.
        """
        if self._texts:
            raise ConfigError(*dict.fromkeys(self._texts))  # several checks may name one value
        if self._unread is not None:
            raise self._unread


def build_database_settings(conf: cfg.ConfigOpts) -> "DatabaseSettings":
    """Return those of the ``[database]`` group's values that are the library's."""
    from nodetracker.db.connection.engine import DatabaseSettings

    own = {option.dest for option in DATABASE.options}
    names = set(conf[DATABASE.name]) - own
    values = {name: read_value(conf, DATABASE.name, name) for name in names}
    connection = values.pop("connection")
    if not connection:
        raise ConfigError("[database] connection: must not be empty")
    return DatabaseSettings(connection=connection, options=values)


def check_values(conf: cfg.ConfigOpts) -> None:
    """Read every registered value once, as the library checks a value only when it is read.

    Raises:
        ConfigError: values are invalid for their options; it names all of them.
    """
    problems = Problems()
    for group, name in list_registered(conf):
        problems.collect(read_value, conf, group, name)
    problems.raise_any()


def read_value(conf: cfg.ConfigOpts, group: str, name: str) -> Any:
    """Read one value.

    Raises:
        ConfigError: the value is invalid for its option, or refers to an option whose value
            is; the message names that one, where its value is, the value unless it is a
            secret, and what is expected.
    """
    try:
        value = conf[name] if group == DEFAULT.name else conf[group][name]
    except (cfg.NoSuchOptError, cfg.TemplateSubstitutionError):  # its text has a part of the value
        raise ConfigError(
            f"[{group}] {name}: a $ in the value is followed by an unknown option name; "
            "write $$ for a literal $"
        ) from None
    except (cfg.Error, ValueError) as error:
        match = _NOT_VALID.fullmatch(_one_line(str(error)))
        if match is None:
            raise ConfigError(f"[{group}] {name}: {_one_line(str(error))}") from error
        blamed = match["name"].replace("-", "_")
        if blamed != name:  # which this value or this default refers to
            read_value(conf, DEFAULT.name, blamed)
        option = _find_option(conf, group, name)
        raw, where = _find_raw(group, name, match["where"])
        problem = explain_invalid(option, raw) or match["reason"]
        raise ConfigError(f"[{group}] {name}: {problem} ({where})") from error
    if isinstance(value, float) and math.isnan(value):  # passes the library's bounds
        raise ConfigError(f"[{group}] {name}: 'nan' is not a number")
    if value is None and (option := _find_option(conf, group, name)).default is not None:
        # The library (10.7) reads a number without a digit as None.
        location = conf.get_location(name, None if group == DEFAULT.name else group)
        _, where = _find_raw(group, name, location.detail if location else "")
        raise ConfigError(
            f"[{group}] {name}: '' is {_describe_expected(option.type, '')} ({where})"
        )
    return value


def _find_option(conf: cfg.ConfigOpts, group: str, name: str) -> cfg.Opt:
    return conf._get_opt_info(name, None if group == DEFAULT.name else group)["opt"]


def _find_raw(group: str, name: str, where: str) -> tuple[list[str], str]:
    """Return the values of an option as they are written, and the file or variable that has them.

    Args:
        where: its file, by the library, which names it also where the environment overrides it.
    """
    variable = f"OS_{group}__{name}".upper()
    if variable in os.environ:
        return [os.environ[variable]], variable
    sections: dict[str, dict[str, list[str]]] = {}
    try:
        cfg.ConfigParser(where, sections).parse()
    except (OSError, cfg.Error):
        return [], where
    written = {key.replace("-", "_"): values for key, values in sections.get(group, {}).items()}
    return written.get(name, []), where


def explain_invalid(option: Any, values: Sequence[str]) -> str | None:
    """Return why the first invalid one of values does not suit an option, in words.

    None if none is invalid, as far as that can be seen: a $ starts the name of another option.

    Args:
        option: of the library or of one that uses it.
    """
    for value in values if getattr(option, "multi", False) else values[-1:]:
        if "$" in value:
            continue
        try:
            option.type(value)
        except ValueError as error:
            if getattr(option, "secret", False) or is_secret(option.dest, value):
                return "the value, which is not shown, is invalid"
            expected = _describe_expected(option.type, value)
            return f"{value!r} is {expected}" if expected else f"{value!r}: {error}"
    return None


def _describe_expected(kind: Any, value: str) -> str | None:
    """Return what a value is not, such as "not a whole number from 1 to 64", None if unknown."""
    if isinstance(kind, types.Number):
        what = "not a whole number" if kind.num_type is int else "not a number"
        try:
            kind.num_type(value)
        except ValueError:
            return what
        if kind.min is not None and kind.max is not None:
            return f"{what} from {kind.min} to {kind.max}"
        if kind.min is not None or kind.max is not None:
            return f"{what} of at {f'most {kind.max}' if kind.min is None else f'least {kind.min}'}"
        return f"not one of {', '.join(map(str, kind.choices or ()))}"
    if isinstance(kind, types.Boolean):
        return "neither true nor false"
    if isinstance(kind, types.String) and kind.choices:
        return f"not one of {', '.join(map(str, kind.choices))}"
    if isinstance(kind, types.String) and kind.regex and kind.regex.pattern == ABSOLUTE_PATH:
        return "not an absolute path"
    if isinstance(kind, types.Dict):
        return "not a list of NAME:VALUE, separated by commas"
    if isinstance(kind, types.HostAddress):
        return "neither an address nor the name of a host"
    if isinstance(kind, types.URI) and kind.schemes:
        return f"not a URL that begins with {' or '.join(f'{name}://' for name in kind.schemes)}"
    return None


def is_secret(name: str, value: str) -> bool:
    """Return whether a value has a password or is one, by the name of its option."""
    if "password" in name or "secret" in name or name.endswith("token"):
        return bool(value)
    try:
        return bool(urlsplit(value).password)
    except ValueError:
        return False


def is_set(conf: cfg.ConfigOpts, group: str, name: str) -> bool:
    """Return whether a file, the environment or the command line sets an option."""
    found = conf.get_location(name, None if group == DEFAULT.name else group)
    return found is not None and bool(found.location.is_user_controlled)


def build_from_options(kind: type[_R], *groups: Mapping[str, Any], **others: Any) -> _R:
    """Build frozen settings of a dataclass, whose fields are named as their options.

    Args:
        groups: values by the names of options; a field is that of the first group with its name.
        others: fields of other names, and those whose values are not the options' own.
    """
    names = [item.name for item in dataclasses.fields(cast("Any", kind)) if item.init]
    found = {
        name: next(group[name] for group in groups if name in group)
        for name in names
        if name not in others
    }
    return kind(**found, **others)


def check_host_name(text: str) -> str:
    """Return a host name without surrounding blanks.

    Raises:
        ConfigError: the text is not a valid host name.
    """
    name = text.strip()
    if not is_host_name(name):
        raise ConfigError(f"[DEFAULT] host: {name!r} is not a valid host name")
    return name


def read_host_name(conf: cfg.ConfigOpts) -> str:
    """Return the name of this host; raises as `check_host_name`."""
    return check_host_name(conf.DEFAULT.host)


def _one_line(text: str) -> str:
    return " ".join(text.split())
