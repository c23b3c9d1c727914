"""The overview page as it is served: paths, types, headers, caching, and who gets it."""

import gzip
import hashlib
import re
from dataclasses import replace
from importlib.resources import files

import pytest

from nodetracker.model.errors import AuthenticationError, ForbiddenError
from tests.unit.api.conftest import Api

STATIC = files("nodetracker.api") / "static"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"

MAX_SCRIPT_BYTES = 150 * 1024
MAX_STYLE_BYTES = 26 * 1024
MAX_COMPRESSED_BYTES = 75 * 1024


@pytest.fixture
def index(api):
    return api.request("GET", "/ui/").text


@pytest.fixture
def place(index):
    """The path below which the other files are."""
    return "/ui/" + re.search(r'src="([^"/]+/)app\.js"', index)[1]


class TestRoot:
    @pytest.mark.parametrize("accept", [BROWSER, "text/html"])
    def test_browsers_are_sent_to_the_page(self, api, accept):
        found = api.request("GET", "/", headers={"Accept": accept})
        assert (found.status_code, found.headers["location"]) == (303, "/ui/")
        assert found.headers["vary"] == "Accept"

    @pytest.mark.parametrize("accept", ["*/*", "application/json", "application/json, text/html"])
    def test_others_get_the_versions(self, api, accept):
        found = api.request("GET", "/", headers={"Accept": accept})
        assert found.json["versions"][0]["id"] == "v2.1"
        assert found.headers["vary"] == "Accept"

    def test_the_page_is_below_the_public_url_of_a_proxy(self, backend):
        settings = replace(backend.settings, public_url="https://example.org/nodetracker/")
        api = Api(replace(backend, settings=settings))
        found = api.request("GET", "/", headers={"Accept": BROWSER})
        assert found.headers["location"] == "https://example.org/nodetracker/ui/"

    def test_the_path_without_its_slash_is_redirected(self, api):
        for path in ("/ui", "//ui"):
            found = api.request("GET", path)
            assert (found.status_code, found.headers["location"]) == (308, "/ui/")
        assert api.request("GET", "//ui//").status_code == 200


class TestFiles:
    def test_the_page_is_asked_for_each_time(self, api):
        found = api.request("GET", "/ui/")
        assert found.headers["content-type"] == "text/html; charset=utf-8"
        assert found.headers["cache-control"] == "no-cache, private"
        again = api.request("GET", "/ui/", headers={"If-None-Match": found.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")

    @pytest.mark.parametrize(
        ("name", "content_type"),
        [
            ("app.js", "text/javascript; charset=utf-8"),
            ("vendor/standalone.module.js", "text/javascript; charset=utf-8"),
            ("app.css", "text/css; charset=utf-8"),
        ],
    )
    def test_the_other_files_never_change(self, api, place, name, content_type):
        found = api.request("GET", place + name)
        assert found.content == STATIC.joinpath(name).read_bytes()
        assert found.headers["content-type"] == content_type
        assert found.headers["cache-control"] == "max-age=31536000, immutable"

    def test_all_have_the_security_headers(self, api, place):
        for path in ("/ui/", f"{place}app.js", f"{place}app.css"):
            headers = api.request("GET", path).headers
            assert headers["content-security-policy"] == CSP
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"

    def test_they_are_compressed_for_those_who_accept_it(self, api, place):
        path = f"{place}app.js"
        found = api.request("GET", path, headers={"Accept-Encoding": "gzip"})
        assert found.headers["content-encoding"] == "gzip"
        assert found.headers["vary"] == "Accept-Encoding"
        assert gzip.decompress(found.content) == api.request("GET", path).content
        unchanged = {"Accept-Encoding": "gzip", "If-None-Match": found.headers["etag"]}
        again = api.request("GET", path, headers=unchanged)
        assert (again.status_code, again.headers["vary"]) == (304, "Accept-Encoding")

    def test_head_has_no_body(self, api, place):
        found = api.request("HEAD", f"{place}app.css")
        assert (found.status_code, found.content) == (200, b"")
        assert int(found.headers["content-length"]) == len(STATIC.joinpath("app.css").read_bytes())

    def test_other_methods_are_405(self, api):
        found = api.request("POST", "/ui/")
        assert (found.status_code, found.headers["allow"]) == (405, "GET, HEAD")

    @pytest.mark.parametrize(
        "path",
        [
            "",
            "..%2f..%2fapplication.py",
            "../../application.py",
            "index.html",
            "vendor",
            "vendor/",
            "vendor/ORIGIN",
            "vendor/LICENSE.htm",
        ],
    )
    def test_nothing_else_is_served(self, api, place, path):
        assert api.request("GET", place + path).status_code == 404

    def test_other_versions_are_404(self, api):
        assert api.request("GET", "/ui/0.0.1/app.js").status_code == 404

    def test_everything_that_files_name_exists(self, api, index, place):
        named = {f"/ui/{path}" for path in re.findall(r'(?:src|href)="([^".][^":]*)"', index)}
        for name in list_names(".js"):
            base = place + name.rpartition("/")[0]
            text = STATIC.joinpath(name).read_text()
            imported = re.findall(r'from "\./([^"]+)"', text)
            named |= {f"{base.rstrip('/')}/{each}" for each in imported}
        assert len(named) > 10
        for path in sorted(named):
            assert api.request("GET", path).status_code == 200, path

    def test_modules_are_loaded_at_once(self, index):
        """Each level of imports would take one more round trip; the style sheet comes first."""
        found = re.findall(
            r'<link rel="modulepreload" fetchpriority="low" href="[^/]+/([^"]+\.js)"', index
        )
        opened = {"charts.js", "vendor/uPlot.iife.min.js"}
        assert sorted([*found, "app.js"]) == sorted(set(list_names(".js")) - opened)


class TestWhoGetsIt:
    def test_where_browsers_ask_for_a_password_it_needs_one(self, api, place):
        api.identity = AuthenticationError("wrong", 'Basic realm="nodetracker"')
        for path in ("/ui/", f"{place}app.js"):
            found = api.request("GET", path)
            assert found.status_code == 401
            assert found.headers["www-authenticate"] == 'Basic realm="nodetracker"'

    def test_where_the_page_asks_it_is_open(self, api, place):
        api.identity = AuthenticationError("a valid token is required")
        for path in ("/ui/", f"{place}app.js"):
            assert api.request("GET", path).status_code == 200
        assert api.request("GET", "/v1/overview").status_code == 401

    def test_sites_that_pretend_to_be_this_machine_do_not_get_it(self, api):
        api.identity = ForbiddenError("Host is evil.example.org")
        assert api.request("GET", "/ui/").status_code == 403


def list_names(suffix, folder=STATIC, prefix=""):
    """Return the paths of the page's files that end in a suffix."""
    names = []
    for entry in folder.iterdir():
        if entry.is_dir():
            names += list_names(suffix, entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(suffix):
            names.append(prefix + entry.name)
    return sorted(names)


def test_the_page_is_small():
    own = [name for name in list_names(".js") if not name.startswith("vendor/")]
    sizes = {name: len(STATIC.joinpath(name).read_bytes()) for name in own}
    assert sum(sizes.values()) <= MAX_SCRIPT_BYTES, sizes
    assert len(STATIC.joinpath("app.css").read_bytes()) <= MAX_STYLE_BYTES
    opened = "charts.js"  # and uPlot, when a chart is opened
    sent = [
        name
        for name in list_names("")
        if name == "vendor/standalone.module.js" or not name.startswith(("vendor/", opened))
    ]
    compressed = sum(len(gzip.compress(STATIC.joinpath(name).read_bytes())) for name in sent)
    assert compressed <= MAX_COMPRESSED_BYTES


def test_vendored_files_are_the_published_ones():
    origin = (STATIC / "vendor" / "ORIGIN").read_text()
    found = dict(re.findall(r"^([\w.]+): [^\0]*?^SHA-256: (\w+)$", origin, re.MULTILINE))
    names = [name for suffix in (".js", ".css") for name in list_names(suffix)]
    vendored = [name for name in names if name.startswith("vendor/")]
    for name in vendored:
        body = STATIC.joinpath(name).read_bytes()
        assert found[name.removeprefix("vendor/")] == hashlib.sha256(body).hexdigest()
    assert len(vendored) == len(found) == 3


@pytest.mark.parametrize("name", [name for name in list_names(".js") if "vendor" not in name])
def test_texts_reach_the_document_as_text_only(name):
    """No script makes elements of text, and none is made from text."""
    text = STATIC.joinpath(name).read_text()
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    assert not re.search(forbidden, text)
    assert "https://" not in text
