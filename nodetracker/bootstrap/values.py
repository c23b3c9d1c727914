"""Read values of the configuration that need no settings of an agent."""

import math
import re
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from nodetracker.conf.opts import DATABASE_GROUP, list_registered
from nodetracker.errors import ConfigError

if TYPE_CHECKING:  # imported late, as not every program needs it
    from nodetracker.db.connection.engine import DatabaseSettings

_LONGEST_NAME = 255
# The library's message about an invalid value: its location and the reason.
_NOT_VALID = re.compile(
    r"Value for option .* detail='(?P<where>.*)'\) is not valid: (?P<reason>.*)"
)


def build_database_settings(conf: cfg.ConfigOpts) -> "DatabaseSettings":
    """Return the ``[database]`` group's values."""
    from nodetracker.db.connection.engine import DatabaseSettings

    values = {name: read_value(conf, DATABASE_GROUP, name) for name in conf[DATABASE_GROUP]}
    connection = values.pop("connection")
    if not connection:
        raise ConfigError("[database] connection: must not be empty")
    return DatabaseSettings(connection=connection, options=values)


def check_values(conf: cfg.ConfigOpts) -> None:
    """Read every registered value once, as the library checks a value only when it is read.

    Raises:
        ConfigError: a value is invalid for its option.
    """
    for group, name in list_registered(conf):
        read_value(conf, group, name)


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
        raise ConfigError(f"[{group}] {name}: is not a number")
    return value


def check_host_name(text: str) -> str:
    """Return a host name without surrounding blanks.

    Raises:
        ConfigError: the text is not a valid host name.
    """
    name = text.strip()
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable() or " " in name:
        raise ConfigError(f"host: {name!r} is not a valid host name")
    return name


def read_host_name(conf: cfg.ConfigOpts) -> str:
    """Return the name of this host; raises as `check_host_name`."""
    return check_host_name(conf.DEFAULT.host)


def _one_line(text: str) -> str:
    return " ".join(text.split())
