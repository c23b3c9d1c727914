"""Serve the overview page: the files of ``static``, below ``/ui/``.

``index.html`` is asked for again each time. It names the other files below a path
that contains a version and a sum of their contents, so they never change and are cached for good.
"""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

import falcon

from nodetracker.api.context import IDENTITY
from nodetracker.api.encoding import ENCODED, EncodedBody, make_tag
from nodetracker.api.family import PAGE_BASE
from nodetracker.api.resource import RouteResource
from nodetracker.model.errors import AuthenticationError

ADDRESS = f"{PAGE_BASE}/"

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_INDEX = "index.html"
_VERSION_MARK = b"VERSION/"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
_LEVEL = 9


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page, compressed once.

    Attributes:
        is_immutable: its path changes with its content.
    """

    body: EncodedBody
    content_type: str
    is_immutable: bool


def load_page_files(version: str) -> dict[str, PageFile]:
    """Return the files of the page by their paths below `PAGE_BASE`.

    Args:
        version: of nodetracker, the first part of the path's version.
    """
    contents = _read_contents(files("nodetracker.api") / "static")
    digest = hashlib.sha256(b"".join(contents[name] for name in sorted(contents)))
    place = f"{version}-{digest.hexdigest()[:12]}/"
    index = contents.pop(_INDEX).replace(_VERSION_MARK, place.encode())
    found = {place + name: _make_file(name, body, True) for name, body in contents.items()}
    return {"": _make_file(_INDEX, index, False), **found}


def _read_contents(folder: Traversable, prefix: str = "") -> dict[str, bytes]:
    """Return the contents of a folder's files that browsers load, by path."""
    found: dict[str, bytes] = {}
    for entry in folder.iterdir():
        path = prefix + entry.name
        if entry.is_dir():
            found |= _read_contents(entry, f"{path}/")
        elif _suffix_of(path) in _TYPES:
            found[path] = entry.read_bytes()
    return found


def _make_file(name: str, plain: bytes, is_immutable: bool) -> PageFile:
    compressed = gzip.compress(plain, compresslevel=_LEVEL, mtime=0)
    body = EncodedBody(plain, compressed, make_tag(plain))
    return PageFile(body, _TYPES[_suffix_of(name)], is_immutable)


def _suffix_of(name: str) -> str:
    return name[name.rfind(".") :]


class PageResource:
    """One file of the page as falcon calls it.

    Where browsers ask for a password themselves, or no credentials would do, the page needs
    what the API needs. Otherwise it is open, as it has the form to log in.
    """

    allowed = ("GET", "HEAD")

    def __init__(self, file: PageFile, public_url: str | None) -> None:
        self._file = file
        self._public_url = public_url

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """Send the file, or the address with a slash at its end, to which links are relative."""
        if request.path == PAGE_BASE and not request.env["PATH_INFO"].endswith("/"):
            raise falcon.HTTPPermanentRedirect(_page_url(request, self._public_url))
        rejected = request.env.get(IDENTITY)
        if isinstance(rejected, Exception) and not _is_login_missing(rejected):
            raise rejected
        response.set_headers(SECURITY_HEADERS)
        response.content_type = self._file.content_type
        if self._file.is_immutable:
            response.set_header("Cache-Control", "max-age=31536000, immutable")
        response.data = self._file.body.plain
        setattr(response.context, ENCODED, self._file.body)

    on_head = on_get


class RootResource:
    """``/``: the page for browsers, the version document for everybody else."""

    def __init__(self, versions: RouteResource, public_url: str | None) -> None:
        self.allowed = versions.allowed
        self._versions = versions
        self._public_url = public_url

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """Redirect to the page, or list the versions."""
        response.append_header("Vary", "Accept")
        if request.client_prefers((falcon.MEDIA_JSON, falcon.MEDIA_HTML)) == falcon.MEDIA_HTML:
            response.status = falcon.HTTP_303
            response.location = _page_url(request, self._public_url)
        else:
            self._versions.respond(request, response)

    on_head = on_get


def add_page(
    app: "falcon.App[falcon.Request, falcon.Response]", version: str, public_url: str | None
) -> None:
    """Add the page's paths to the application."""
    found: Mapping[str, PageFile] = load_page_files(version)
    for path, file in found.items():
        app.add_route(f"{PAGE_BASE}/{path}".rstrip("/"), PageResource(file, public_url))


def _is_login_missing(rejected: Exception) -> bool:
    """Return whether credentials are missing for which browsers do not ask."""
    return isinstance(rejected, AuthenticationError) and rejected.challenge is None


def _page_url(request: falcon.Request, public_url: str | None) -> str:
    """Return the URL of the page, or without a public one its path."""
    return (public_url or request.root_path).rstrip("/") + ADDRESS
