"""The way to the broker: oslo.messaging, imported when it is used and set up for nodetracker."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from nodetracker.errors import ConfigError

EXCHANGE = "nodetracker"
NOTIFICATIONS_GROUP = "oslo_messaging_notifications"
HEARTBEAT_SECONDS = 20
"""After twice this without a sign of life a broker is given up and connected to anew."""
PREFETCH = 32
"""Calls that one server takes from its queue ahead; the others are left to its like."""
_HOW = (
    "write rabbit://USER:PASSWORD@HOST:5672/, with %2F for a / in USER or PASSWORD, "
    "%40 for an @ and so on"
)


def import_library() -> Any:
    """Return oslo.messaging, its service library told to use threads first.

    Without that it takes eventlet, or refuses to be imported.
    """
    from oslo_service import backend

    backend.init_backend(backend.BackendType.THREADING)
    import oslo_messaging as library
    from oslo_config import cfg
    from oslo_messaging._drivers import impl_rabbit  # where its options stand

    # The library leaves "/" in user names and passwords, by which kombu then cuts its URL,
    # and shows what is left of them in an error.
    driver: Any = impl_rabbit
    driver.parse = SimpleNamespace(quote=partial(quote, safe=""))
    messaging: Any = library
    messaging.set_transport_defaults(EXCHANGE)
    cfg.set_defaults(messaging.transport._transport_opts, transport_url=None)  # as our own
    cfg.set_defaults(
        impl_rabbit.rabbit_opts,
        heartbeat_timeout_threshold=HEARTBEAT_SECONDS,
        rabbit_qos_prefetch_count=PREFETCH,
    )
    return messaging


def list_options() -> list[Any]:
    """Return (group, options) of the library, defaults as nodetracker has them.

    Raises:
        ImportError: the library is not installed.
    """
    import_library()
    from oslo_messaging import opts

    library: Any = opts
    return list(library.list_opts())


class Transport:
    """One connection pool to the broker; nothing is connected before it is used.

    Args:
        conf: the process's own configuration, from which the library reads its options.
        url: of the broker, with its password.

    Attributes:
        rpc: the library's transport of calls.
        notifications: that of notifications, which may have a broker of its own;
            None when no driver of them is configured.

    Raises:
        ConfigError: a URL cannot be used, or the library is missing; the message
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
        """Delete a queue with what waits in it, unless somebody listens to it.

        Raises: whatever the library and those below it raise.
        """
        connect = getattr(self.rpc._driver, "_get_connection", None)
        if connect is None:
            return  # of a driver without queues
        with connect() as pooled:
            connection = pooled.connection.connection.clone()  # those of the pool have threads
        with connection:
            connection.default_channel.queue_delete(queue=name, if_unused=True)

    def _open(self, group: str, url: str, make: Callable[..., Any]) -> Any:
        self._check(group, url)
        try:
            return make(self._conf, url=url)
        except self.library.DriverLoadFailure as error:
            raise ConfigError(
                f"[{group}] transport_url: there is no driver {error.driver!r}"
            ) from None

    def _check(self, group: str, url: str) -> None:
        try:
            parsed = self.library.TransportURL.parse(self._conf, url)
            known = bool(parsed.transport) and (
                parsed.hosts or parsed.transport in ("fake", "kombu+memory")
            )
        except Exception as error:  # the library and what it parses with raise what they like
            raise ConfigError(
                f"[{group}] transport_url: cannot be used: {type(error).__name__}; {_HOW}"
            ) from None
        if not known:
            raise ConfigError(f"[{group}] transport_url: names no broker; {_HOW}")


class LibraryNotifier:
    """Sends through the library's notifier, and raises what that would only log.

    Args:
        transport: has one of notifications, that is, some are wanted.
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
        """Send one."""
        self._failure = None
        self._notifier.info({}, event_type, payload)
        if self._failure is not None:
            raise self._failure
