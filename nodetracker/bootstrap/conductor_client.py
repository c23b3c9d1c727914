"""Build the client of conductors, for a process without a database."""

from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from nodetracker.bootstrap.values import read_host_name
from nodetracker.compute.identity import ensure_compute_id
from nodetracker.conductor.http_caller import AgentIdentity, HttpCaller, parse_endpoint
from nodetracker.model.errors import AuthenticationError, ConfigError
from nodetracker.process.clock import DatabaseClock

if TYPE_CHECKING:
    import ssl

_MAX_TOKEN_BYTES = 1024


def check_conductor_client(conf: cfg.ConfigOpts) -> None:
    """Check the options by which a process without a database calls conductors.

    Raises:
        ConfigError: they cannot be used; the message says what to set.
    """
    if conf.conductor.use_local:
        return
    if not conf.conductor.endpoint:
        raise ConfigError(
            "[conductor] endpoint: not set, and use_local is false; set it to the URLs of the "
            "conductors, such as https://control-1:8775"
        )
    for text in conf.conductor.endpoint:
        parse_endpoint(text, conf.conductor.allow_http)


def build_http_caller(
    conf: cfg.ConfigOpts, is_agent: bool = False, news: SimpleQueue[Any] | None = None
) -> HttpCaller:
    """Build the caller of the conductors; nothing is connected before the first call.

    Args:
        is_agent: the process is the agent, whose first start creates its uuid and joins; no
            other one joins, nor renews the credential of this host unless it is asked to.
        news: see `HttpCaller`.

    Raises:
        ConfigError: a value cannot be used.
        IdentityError: the agent's uuid cannot be read or created.
    """
    check_conductor_client(conf)
    group, state_path = conf.conductor, Path(conf.state_path)
    endpoints = [parse_endpoint(text, group.allow_http) for text in group.endpoint]
    has_tls = any(endpoint.is_tls for endpoint in endpoints)
    agent_id = ensure_compute_id(state_path) if is_agent else None
    identity = AgentIdentity(
        read_host_name(conf), agent_id, state_path, lambda: read_join_token(conf)
    )
    tls = _make_tls(group.cafile) if has_tls else None
    return HttpCaller(endpoints, identity, DatabaseClock(), tls, news=news)


def _make_tls(cafile: str | None) -> "ssl.SSLContext":
    import ssl

    try:
        return ssl.create_default_context(cafile=cafile)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"[conductor] cafile: {cafile}: {reason}") from error


def read_join_token(conf: cfg.ConfigOpts) -> str | None:
    """Return the join token, None without one; its file is read each time, as it may come later.

    Raises:
        AuthenticationError: its file cannot be read.
    """
    path = conf.conductor.join_token_file
    if path is None:
        token: str | None = conf.conductor.join_token
        return token
    try:
        with Path(path).open("rb") as file:
            return file.read(_MAX_TOKEN_BYTES).decode(errors="replace").strip() or None
    except OSError as error:
        raise AuthenticationError(
            f"[conductor] join_token_file: {path}: {error.strerror}"
        ) from error
