"""The pictures of the documents show what the page and the terminal show."""

import re

import pytest

from tests.documents import DOCS
from tests.pictures import (
    IMAGES,
    VIEWS,
    digest_of,
    draw_screens,
    read_text,
    serve_fleet,
    take_picture,
)

RENEW = "a picture is stale; renew all by python -m tests.pictures, and look at them"


@pytest.fixture(scope="module")
def url():
    with serve_fleet() as url:
        yield url


@pytest.mark.parametrize("name", VIEWS)
def test_a_picture_of_the_page_shows_what_the_page_shows(browser, url, name):
    digest, text = read_text(name)
    assert take_picture(browser, url, VIEWS[name], text)[1] == text, RENEW
    assert digest_of((IMAGES / f"{name}.png").read_bytes()) == digest, RENEW


def test_the_pictures_of_the_terminal_show_what_it_shows():
    def read(svg: str) -> str:
        return re.sub(r"<style>.*?</style>|<[^>]*>", "", svg, flags=re.DOTALL)

    for name, svg in draw_screens().items():
        assert read((IMAGES / f"{name}.svg").read_text()) == read(svg), RENEW


def test_every_picture_is_made_here_and_shown_somewhere():
    made = {f"{name}.png" for name in VIEWS} | {f"{name}.svg" for name in draw_screens()}
    assert {str(path.relative_to(IMAGES)) for path in IMAGES.rglob("*.*")} == made
    pages = [DOCS.parent / "README.md", *DOCS.glob("*.md")]
    shown = {name for page in pages for name in re.findall(r"images/([^)]+)\)", page.read_text())}
    assert shown == made
