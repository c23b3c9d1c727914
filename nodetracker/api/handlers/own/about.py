"""``/v1``, the version document, and ``/v1/about``."""

from nodetracker.api.call import Answer, Call


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
            "rules": call.backend.authorizer.list_allowed(call.context),
        }
    )
