"""Read the JSON body of a request."""

import falcon

from nodetracker.accounting.requests.json_reader import parse_json
from nodetracker.api.errors import too_large
from nodetracker.api.texts import check_document
from nodetracker.model.errors import RequestError

_JSON = "application/json"


def read_json_body(request: falcon.Request, max_bytes: int) -> object:
    """Return the body as JSON.

    Raises:
        RequestError: it is missing, or not valid JSON.
        falcon.HTTPContentTooLarge: it is too long.
        falcon.HTTPUnsupportedMediaType: it is declared to be something else.
    """
    media_type = (request.content_type or _JSON).partition(";")[0].strip().lower()
    if media_type != _JSON and not media_type.endswith("+json"):
        raise falcon.HTTPUnsupportedMediaType(description=f"Content-Type: expected {_JSON}.")
    try:
        text = _read(request, max_bytes).decode()
    except UnicodeDecodeError:
        raise RequestError("body", "not valid UTF-8") from None
    document = parse_json(text, "body")
    check_document(document)
    return document


def _read(request: falcon.Request, max_bytes: int) -> bytes:
    """Return the body; of one in chunks, servers that can find its end say so."""
    length = request.content_length
    if length is None and not request.env.get("wsgi.input_terminated"):
        return b""
    wanted = max_bytes + 1 if length is None else min(length, max_bytes + 1)
    raw = b""
    while len(raw) < wanted:
        part = request.env["wsgi.input"].read(wanted - len(raw))
        if not part:
            break
        raw += part
    if len(raw) > max_bytes or (length or 0) > max_bytes:
        raise too_large(max_bytes)
    return raw
