"""``/v1``, ``/v1/about`` and ``/v1/session``: this API, who the caller is, and its login."""

from nodetracker.api.call import Answer, Call, Sessions
from nodetracker.api.context import Login
from nodetracker.api.fields import SHORT_TEXT, answer, parameters
from nodetracker.model.errors import NotFoundError

VERSION = answer(name=str, version=str, links=[answer(rel=str, href=str)])

ABOUT = answer(
    version=str,
    user=str,
    project_id=str | None,
    roles=[str],
    is_system=bool,
    has_session=(bool, "the request is that of a browser's session"),
    grafana_url=(str | None, "the dashboard in [api] grafana_url"),
    pci_aliases=([str], "the names in [pci] alias, by which claims request devices"),
    rules=([str], "the rules of the policy that allow this user"),
)


LOGIN = parameters(
    "user",
    "password",
    user=SHORT_TEXT,
    domain=(SHORT_TEXT, f"{SHORT_TEXT['description']} (without one: Default)"),
    project=(SHORT_TEXT, f"{SHORT_TEXT['description']} (without one: system scope)"),
    password=SHORT_TEXT | {"description": "a text of 1 to 4096 characters", "maxLength": 4096},
)


def show_version(call: Call) -> Answer:
    """Show the name and version of this API, and where its description is."""
    links = {"self": "/v1", "service-desc": "/v1/openapi.json", "status": "/health"}
    return Answer(
        {
            "name": "nodetracker",
            "version": call.backend.version,
            "links": [{"rel": rel, "href": call.url.link(path)} for rel, path in links.items()],
        }
    )


def show_about(call: Call) -> Answer:
    """Show nodetracker's version, and who the caller is and may do what."""
    identity = call.context.identity
    assert identity is not None, "the operation is not open"
    return Answer(
        {
            "version": call.backend.version,
            "user": identity.user_id,
            "project_id": identity.project_id,
            "roles": sorted(identity.roles),
            "is_system": identity.is_system,
            "has_session": call.context.session_token is not None,
            "grafana_url": call.backend.settings.grafana_url,
            "pci_aliases": sorted(call.backend.policy.aliases),
            "rules": call.backend.authorizer.list_allowed(call.context),
        }
    )


def open_session(call: Call) -> Answer:
    """Log in to Keystone; the token is returned as a cookie that counts as X-Auth-Token."""
    body = call.body
    login = Login(
        body["user"], body.get("domain", "Default"), body.get("project"), body["password"]
    )
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
