"""``/v1/session``: the login of a browser."""

from nodetracker.api.call import Answer, Call, Sessions
from nodetracker.api.context import Login
from nodetracker.model.errors import NotFoundError

_DOMAIN = "Default"


def open_session(call: Call) -> Answer:
    """Log in to Keystone; the token is returned as a cookie that counts as X-Auth-Token."""
    body = call.body
    login = Login(body["user"], body.get("domain", _DOMAIN), body.get("project"), body["password"])
    return Answer(status=204, session_token=_find(call).open(login, call.context.address))


def close_session(call: Call) -> Answer:
    """Log out: delete the cookie and revoke its token."""
    sessions, token = _find(call), call.context.session_token
    if token is not None:
        sessions.close(token)
    return Answer(status=204, session_token="")


def _find(call: Call) -> Sessions:
    if call.backend.sessions is None:
        raise NotFoundError("Sessions need [api] auth_strategy = keystone.")
    return call.backend.sessions
