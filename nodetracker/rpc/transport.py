"""Connect to the broker through oslo.messaging, which is imported when it is first used."""

import logging
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from nodetracker.model.errors import ConfigError
from nodetracker.process.backend import choose_threads
from nodetracker.process.outage import OutageLog

LOG = logging.getLogger(__name__)

EXCHANGE = "nodetracker"
NOTIFICATIONS_GROUP = "oslo_messaging_notifications"
HEARTBEAT_SECONDS = 20
"""After twice this without a sign of life, the broker is connected to again."""
PREFETCH = 32
"""Messages that an agent fetches ahead of work."""
_HOW = (
    "write rabbit://USER:PASSWORD@HOST:5672/, with %2F for a / in USER or PASSWORD, "
    "%40 for an @ and so on"
)
_ATTEMPTS = (
    "[%(connection_id)s] AMQP server on",
    "Connection failed",
    "Failed to consume message",
    "Failed to declare consumer",
    "Failed to publish message",
    "Unable to connect to AMQP server",
    "Unexpected error during heartbeat thread processing",
)
"""Beginnings of what the library's driver logs at each attempt to reach the broker."""
_SERVER_LOG = "oslo_messaging.rpc.server"


@cache
def import_library() -> Any:
    """Return oslo.messaging, with its service library set to threads.

    By default that uses eventlet, or fails to be imported. An outage of the broker is
    logged when it starts and when it ends; the library logs each attempt of each connection.
    """
    choose_threads()
    import oslo_messaging as library
    from oslo_config import cfg
    from oslo_messaging._drivers import impl_rabbit  # has its options

    # The library leaves "/" in user names and passwords; kombu then cuts its URL there
    # and shows the rest of them in an error.
    driver: Any = impl_rabbit
    driver.parse = SimpleNamespace(quote=partial(quote, safe=""))
    kombu = driver.kombu
    _log_outages(kombu.transport.get_transport_cls("amqp"), kombu.utils.url.parse_url)
    driver.LOG.logger.addFilter(partial(_demote_attempt, driver.amqp_ex.ChannelError))
    logging.getLogger(_SERVER_LOG).addFilter(_demote_message)
    messaging: Any = library
    messaging.set_transport_defaults(EXCHANGE)
    cfg.set_defaults(
        messaging.transport._transport_opts, transport_url=None
    )  # the default of our own option
    cfg.set_defaults(
        impl_rabbit.rabbit_opts,
        heartbeat_timeout_threshold=HEARTBEAT_SECONDS,
        rabbit_qos_prefetch_count=PREFETCH,
    )
    return messaging


def _log_outages(transport: Any, parse_url: Callable[[str], dict[str, Any]]) -> None:
    """Let a class of kombu log when brokers are first not reached, and when one is again.

    Those of a cluster are away once none of them was reached in a row. An attempt that began
    before another one succeeded says nothing when it fails: threads connect side by side.
    """
    connect = transport.establish_connection
    outages: dict[str, OutageLog] = {}
    refusing: dict[str, set[str]] = {}
    reached: Counter[str] = Counter()

    def establish_connection(self: Any) -> Any:
        places = [parse_url(url) for url in self.client.alt]
        names = sorted(f"{place['hostname']}:{place['port']}" for place in places)
        brokers = ", ".join(names or [self.client.host])
        if brokers not in outages:
            what = f"The message broker{' cluster' * (len(names) > 1)} at {brokers}"
            outages[brokers] = OutageLog(what, Exception, LOG)
            refusing[brokers] = set()
        outage, away, before = outages[brokers], refusing[brokers], reached[brokers]
        failure: Exception | None = None
        try:
            connection = connect(self)
        except Exception as error:
            failure = error
        # Logged outside the handler: the log formatter would append the error being handled.
        if failure is None:
            reached[brokers] += 1
            away.clear()
            outage.note_success("connect")
            return connection
        if reached[brokers] == before:
            away.add(self.client.host)
            if len(away) >= len(names):
                outage.note_failure("connect", failure)
        raise failure

    transport.establish_connection = establish_connection


def _demote_attempt(refusal: type[Exception], record: logging.LogRecord) -> bool:
    """Make an attempt to reach the broker a debug message; return whether it is logged.

    Args:
        refusal: type of errors by which a broker that is reached refuses something.
    """
    if not str(record.msg).startswith(_ATTEMPTS):
        return True
    if isinstance(record.args, dict) and isinstance(record.args.get("err_str"), refusal):
        return True
    return _demote(record)


def _demote_message(record: logging.LogRecord) -> bool:
    """Make a message that nobody here sends a debug message, so that a flood fills no log."""
    return record.msg != "Exception during message handling" or _demote(record)


def _demote(record: logging.LogRecord) -> bool:
    """Make a record a debug message; return whether it is logged."""
    record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
    return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


def list_options() -> list[Any]:
    """Return (group, options) of the library, with nodetracker's defaults.

    Raises:
        ImportError: the library is not installed.
    """
    import_library()
    from oslo_messaging import opts

    library: Any = opts
    return list(library.list_opts())


class Transport:
    """One connection pool to the broker; it connects at its first use.

    Args:
        conf: the process's configuration, from which the library reads its options.
        url: of the broker, with its password.

    Attributes:
        rpc: the library's transport for calls.
        notifications: the one for notifications, which may have their own broker;
            None if no driver for them is configured.

    Raises:
        ConfigError: a URL is invalid, or the library is missing; the message
            shows no part of the URL.
    """

    def __init__(self, conf: Any, url: str) -> None:
        try:
            self.library = import_library()
        except ImportError as error:
            raise ConfigError(
                f"[DEFAULT] transport_url: needs the extra nodetracker[messaging]: {error}"
            ) from error
        self._conf = conf
        self.rpc = self._open("DEFAULT", url, self.library.get_rpc_transport)
        conf.register_opts(self.library.notify.notifier._notifier_opts, group=NOTIFICATIONS_GROUP)
        options = conf[NOTIFICATIONS_GROUP]
        self.notifications: Any | None = None
        if any(name and name != "noop" for name in options.driver):
            self.notifications = self._open(
                NOTIFICATIONS_GROUP if options.transport_url else "DEFAULT",
                options.transport_url or url,
                self.library.get_notification_transport,
            )

    def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages, unless a server listens to it.

        Raises: any error of the library and those below it.
        """
        connect = getattr(self.rpc._driver, "_get_connection", None)
        if connect is None:
            return  # a driver without queues
        with connect() as pooled:
            connection = (
                pooled.connection.connection.clone()
            )  # connections of the pool have threads
        with connection:
            connection.default_channel.queue_delete(queue=name, if_unused=True)

    def _open(self, group: str, url: str, make: Callable[..., Any]) -> Any:
        self._check(group, url)
        try:
            return make(self._conf, url=url)
        except self.library.DriverLoadFailure as error:
            raise ConfigError(f"[{group}] transport_url: unknown driver {error.driver!r}") from None

    def _check(self, group: str, url: str) -> None:
        try:
            parsed = self.library.TransportURL.parse(self._conf, url)
            known = bool(parsed.transport) and (
                parsed.hosts or parsed.transport in ("fake", "kombu+memory")
            )
        except Exception as error:  # the library and its parsers raise many types
            raise ConfigError(
                f"[{group}] transport_url: invalid URL ({type(error).__name__}): {_HOW}"
            ) from None
        if not known:
            raise ConfigError(f"[{group}] transport_url: no broker in the URL: {_HOW}")


class LibraryNotifier:
    """Sends through the library's notifier, and raises errors that it would only log.

    Args:
        transport: with a transport for notifications.
    """

    def __init__(self, transport: Transport, publisher: str) -> None:
        watched = transport.notifications
        assert watched is not None
        self._failure: Exception | None = None
        send = watched._send_notification

        def watch(*arguments: Any, **named: Any) -> None:
            try:
                send(*arguments, **named)
            except Exception as error:
                self._failure = error
                raise

        watched._send_notification = watch
        notifier = transport.library.Notifier
        self._notifier = notifier(watched, publisher_id=publisher, retry=0)

    def __call__(self, event_type: str, payload: dict[str, Any]) -> None:
        """Send one notification."""
        self._failure = None
        self._notifier.info({}, event_type, payload)
        if self._failure is not None:
            raise self._failure
