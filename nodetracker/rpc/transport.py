"""The way to the broker: oslo.messaging, imported when it is used and set up for nodetracker."""

from typing import Any

from nodetracker.errors import ConfigError

EXCHANGE = "nodetracker"
HEARTBEAT_SECONDS = 20
"""After twice this without a sign of life a broker is given up and connected to anew."""
PREFETCH = 32
"""Calls that one server takes from its queue ahead; the others are left to its like."""


def import_library() -> Any:
    """Return oslo.messaging, its service library told to use threads first.

    Without that it takes eventlet, or refuses to be imported.
    """
    from oslo_service import backend

    backend.init_backend(backend.BackendType.THREADING)
    import oslo_messaging as library
    from oslo_config import cfg
    from oslo_messaging._drivers import impl_rabbit  # where its options stand

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

    Raises:
        ConfigError: the URL cannot be used, or the library is missing.
    """

    def __init__(self, conf: Any, url: str) -> None:
        try:
            self.library = import_library()
        except ImportError as error:
            raise ConfigError(
                f"[DEFAULT] transport_url: needs the extra nodetracker[messaging]: {error}"
            ) from error
        self.conf = conf
        self._url = url
        self._check(conf, url)
        try:
            self.rpc = self.library.get_rpc_transport(conf, url=url)
        except self.library.DriverLoadFailure as error:
            raise ConfigError(
                f"[DEFAULT] transport_url: there is no driver {error.driver!r}"
            ) from None

    def make_notification_transport(self) -> Any:
        """Return the library's transport of notifications; it may have a broker of its own."""
        library = self.library
        group = "oslo_messaging_notifications"
        self.conf.register_opts(library.notify.notifier._notifier_opts, group=group)
        return library.get_notification_transport(
            self.conf, url=self.conf[group].transport_url or self._url
        )

    def _check(self, conf: Any, url: str) -> None:
        try:
            parsed = self.library.TransportURL.parse(conf, url)
            known = bool(parsed.transport) and (
                parsed.hosts or parsed.transport in ("fake", "kombu+memory")
            )
        except Exception as error:  # the library and what it parses with raise what they like
            raise ConfigError(
                f"[DEFAULT] transport_url: cannot be used: {type(error).__name__}"
            ) from None
        if not known:
            raise ConfigError(
                "[DEFAULT] transport_url: names no broker; write rabbit://USER:PASSWORD@HOST:5672/"
            )


class LibraryNotifier:
    """Sends through the library's notifier, and raises what that would only log."""

    def __init__(self, transport: Transport, publisher: str) -> None:
        library = transport.library
        watched = transport.make_notification_transport()
        self._failure: Exception | None = None
        send = watched._send_notification

        def watch(*arguments: Any, **named: Any) -> None:
            try:
                send(*arguments, **named)
            except Exception as error:
                self._failure = error
                raise

        watched._send_notification = watch
        self._notifier = library.Notifier(watched, publisher_id=publisher, retry=0)
        names = transport.conf.oslo_messaging_notifications.driver
        self.is_wanted = any(name and name != "noop" for name in names)

    def __call__(self, event_type: str, payload: dict[str, Any]) -> None:
        """Send one."""
        self._failure = None
        self._notifier.info({}, event_type, payload)
        if self._failure is not None:
            raise self._failure
