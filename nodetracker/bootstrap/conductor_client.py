"""Build the client of conductors, for a process without a database."""

from pathlib import Path
from typing import TYPE_CHECKING

from oslo_config import cfg

from nodetracker.bootstrap.values import Problems, read_host_name
from nodetracker.compute.identity import ensure_compute_id
from nodetracker.conductor.connections import ConductorUrl, parse_url
from nodetracker.conductor.credential_file import read_credential
from nodetracker.conductor.http_caller import AgentIdentity, HttpCaller
from nodetracker.model.errors import AuthenticationError, ConfigError, IdentityError
from nodetracker.process.clock import DatabaseClock

if TYPE_CHECKING:
    import ssl

_MAX_TOKEN_BYTES = 1024


def read_connection(conf: cfg.ConfigOpts) -> "tuple[list[ConductorUrl], ssl.SSLContext | None]":
    """Return where the conductors of a process without a database are, and the TLS of calls.

    Raises:
        ConfigError: the options cannot be used; it names all of them and says what to set.
    """
    group, problems = conf.conductor, Problems()
    if not group.endpoint:
        problems.add(
            "[conductor] endpoint: not set, and use_local is false; set it to the URLs of the "
            "conductors, such as https://control-1:8775"
        )
    urls = [problems.collect(parse_url, text, group.allow_http) for text in group.endpoint]
    needs_tls = any(url is None or url.is_tls for url in urls)
    tls = problems.collect(_make_tls, group.cafile) if needs_tls else None
    problems.raise_any()
    return urls, tls


def build_http_caller(conf: cfg.ConfigOpts, is_agent: bool = False) -> HttpCaller:
    """Build the caller of the conductors; nothing is connected before the first call.

    Args:
        is_agent: the process is the agent, whose first start creates its uuid and joins; no
            other one joins, nor renews the credential of this host unless it is asked to.

    Raises:
        ConfigError: a value cannot be used.
        IdentityError: the agent's uuid cannot be read or created.
    """
    urls, tls = read_connection(conf)
    state_path = Path(conf.state_path)
    agent_id = ensure_compute_id(state_path) if is_agent else None
    identity = AgentIdentity(
        read_host_name(conf), agent_id, state_path, lambda: read_join_token(conf)
    )
    return HttpCaller(urls, identity, DatabaseClock(), tls)


def _make_tls(cafile: str | None) -> "ssl.SSLContext":
    import ssl

    try:
        return ssl.create_default_context(cafile=cafile)
    except (OSError, ssl.SSLError) as error:
        is_content = isinstance(error, ssl.SSLError)
        reason = "contains no certificate in PEM" if is_content else error.strerror
        raise ConfigError(f"[conductor] cafile: {cafile}: {reason}") from error


def find_missing_token(conf: cfg.ConfigOpts) -> str | None:
    """Return why the agent cannot join conductors yet; None if it can, or has joined."""
    try:
        if read_credential(Path(conf.state_path)) or read_join_token(conf):
            return None
        path = conf.conductor.join_token_file
        problem = "[conductor] join_token_file: " + (f"{path} is empty" if path else "not set")
    except AuthenticationError as error:
        problem = str(error)
    except IdentityError:  # of another user's, so that there is one
        return None
    return f"{problem}; this host has no credential and joins once there is a token"


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
