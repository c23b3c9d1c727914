"""Read values of the configuration that need no settings of an agent."""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from oslo_config import cfg

from nodetracker.bootstrap.options.default import DATABASE
from nodetracker.bootstrap.options.opts import list_registered
from nodetracker.model.errors import ConfigError
from nodetracker.model.text import is_host_name

if TYPE_CHECKING:  # imported late, as not every program needs it
    from nodetracker.db.connection.engine import DatabaseSettings

_P = ParamSpec("_P")
_R = TypeVar("_R")

# The library's message about an invalid value: its location and the reason.
_NOT_VALID = re.compile(
    r"Value for option .* detail='(?P<where>.*)'\) is not valid: (?P<reason>.*)"
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
        except (cfg.Error, ValueError) as error:  # of a value that `check_values` names
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
            raise ConfigError(*self._texts)
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
        ConfigError: the value is invalid for its option; the message contains
            no part of a secret.
    """
    try:
        value = conf[name] if group == "DEFAULT" else conf[group][name]
    except (cfg.NoSuchOptError, cfg.TemplateSubstitutionError):  # its text has a part of the value
        raise ConfigError(
            f"[{group}] {name}: a $ in the value is followed by an unknown option name; "
            "write $$ for a literal $"
        ) from None
    except (cfg.Error, ValueError) as error:
        match = _NOT_VALID.fullmatch(_one_line(str(error)))
        problem = f"{match['reason']} ({match['where']})" if match else _one_line(str(error))
        raise ConfigError(f"[{group}] {name}: {problem}") from error
    if isinstance(value, float) and math.isnan(value):  # passes the library's bounds
        raise ConfigError(f"[{group}] {name}: not a number")
    return value


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
        raise ConfigError(f"host: {name!r} is not a valid host name")
    return name


def read_host_name(conf: cfg.ConfigOpts) -> str:
    """Return the name of this host; raises as `check_host_name`."""
    return check_host_name(conf.DEFAULT.host)


def _one_line(text: str) -> str:
    return " ".join(text.split())
