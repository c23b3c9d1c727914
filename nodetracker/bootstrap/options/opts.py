"""Register all options for the programs and list them for the sample file."""

from collections.abc import Iterable, Sequence

from oslo_config import cfg
from oslo_db import options as db_options
from oslo_log import _options as log_options  # the module of the library's own entry point
from oslo_log import versionutils
from oslo_reports import opts as report_options

from nodetracker.bootstrap.options.agent import COMPUTE, HOST, METRICS, PCI, PLACEMENT
from nodetracker.bootstrap.options.api import API, SCHEDULER
from nodetracker.bootstrap.options.default import (
    AUDIT,
    CONDUCTOR,
    DATABASE,
    DEFAULT,
    HOST_OPTION,
    TRANSPORT_URL,
    OptionGroup,
)

_GROUPS = (COMPUTE, HOST, PCI, CONDUCTOR, DATABASE, SCHEDULER, PLACEMENT, METRICS, API, AUDIT)
"""All but ``[DEFAULT]``."""

DEFAULT_CONNECTION = "sqlite:///$state_path/nodetracker.sqlite"

_QUIET_LIBRARIES = (
    "alembic=WARNING",
    "amqp=ERROR",  # warns about messages from the broker for a closed channel
    "oslo.messaging=WARNING",
    "oslo_messaging.notify=CRITICAL",  # our sender logs and retries failed notifications
    "oslo_db=WARNING",
    "oslo_service=WARNING",
    "sqlalchemy=WARNING",
    "uvicorn=ERROR",  # warns of every malformed request
)


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    """Return (group, options) of nodetracker, of every installed driver and of keystoneauth.

    ``transport_url`` is listed by the messaging library.
    """
    shown = OptionGroup(DEFAULT.name, (HOST_OPTION, *DEFAULT.options))
    return [shown, *_GROUPS, *_list_drivers(), (PLACEMENT.name, list_placement_options())]


def list_placement_options() -> Sequence[cfg.Opt]:
    """Return keystoneauth's options of ``[placement]``; empty if it is not installed."""
    try:
        from nodetracker.placement.session import list_options
    except ImportError:
        return ()
    return list_options()


def _list_drivers() -> list[tuple[str, Sequence[cfg.Opt]]]:
    # Imported when needed, as it reads the metadata of all installed packages.
    from nodetracker.bootstrap.options.plugins import list_plugins

    return [(plugin.group, plugin.options) for plugin in list_plugins() if plugin.options]


def set_library_defaults() -> None:
    """Set nodetracker's defaults of the libraries' options.

    An agent has two threads that write, so its connection pool is small. The
    next audit retries a failed first connection, so the library does not retry
    for minutes. Logs go to stderr, as commands print their output to stdout.
    """
    cfg.set_defaults(
        db_options.database_opts,
        connection=DEFAULT_CONNECTION,
        max_pool_size=2,
        max_overflow=3,
        max_retries=1,
        retry_interval=1,
    )
    cfg.set_defaults(
        [option for _, options in log_options.list_opts() for option in options], use_stderr=True
    )
    cfg.set_defaults(
        log_options.log_opts,
        default_log_levels=[*log_options.DEFAULT_LOG_LEVELS, *_QUIET_LIBRARIES],
    )


def register_options(conf: cfg.ConfigOpts) -> None:
    """Register every option of nodetracker and its libraries, for a program that logs."""
    from oslo_log import log as logging  # late: only such programs need it

    set_library_defaults()
    logging.register_options(conf)
    _register_others(conf)
    register_driver_options(conf)


def register_options_for_check(conf: cfg.ConfigOpts) -> None:
    """Register the same options on a configuration that is only checked."""
    register_command_options(conf)
    register_driver_options(conf)


def register_command_options(conf: cfg.ConfigOpts) -> None:
    """Register all options but those of drivers, for commands, which run none.

    The logging library would use a configuration registered through it as the
    configuration of the process.
    """
    set_library_defaults()
    conf.register_cli_opts([*log_options.common_cli_opts, *log_options.logging_cli_opts])
    conf.register_opts([*log_options.generic_log_opts, *log_options.log_opts])
    _register_others(conf)


def register_driver_options(conf: cfg.ConfigOpts) -> None:
    """Register the options of all installed drivers."""
    for group, options in _list_drivers():
        conf.register_opts(options, group=group)


def _register_others(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(versionutils.deprecated_opts)  # not by the library's own registration
    conf.register_opts(db_options.database_opts, group=DATABASE.name)
    for group, report in report_options.list_opts():
        conf.register_opts(report, group=group)
    conf.register_opt(HOST_OPTION, group=DEFAULT.name)
    conf.register_opts((TRANSPORT_URL, *DEFAULT.options))
    for group, options in _GROUPS:
        conf.register_opts(options, group=group)


def is_group(conf: cfg.ConfigOpts, name: str) -> bool:
    """Return whether a name is a group; the value of an option may be invalid."""
    try:
        return isinstance(conf[name], cfg.ConfigOpts.GroupAttr)
    except (cfg.Error, ValueError):
        return False


def list_registered(conf: cfg.ConfigOpts) -> Iterable[tuple[str, str]]:
    """Yield (group, option name) of all registered options.

    Those of ``[DEFAULT]`` come first, as defaults of other options refer to them.
    """
    groups = {name for name in conf if is_group(conf, name)}
    for name in sorted(set(conf) - groups):
        yield DEFAULT.name, name
    for group in sorted(groups):
        for name in sorted(conf[group]):
            yield group, name
