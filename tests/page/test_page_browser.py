"""The page in a real browser: Chromium, headless."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from accord.page.write import write_report
from browser import CHROMIUM, Browser
from page.made import HOSTILE, full_trial, small_run
from written_runs import write_run

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed: apt install chromium"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def first_column(browser: Browser) -> list[str]:
    code = "[...document.querySelectorAll('#headline tbody:first-of-type th')].map(x=>x.innerText)"
    return [str(text) for text in browser.run(code)]


def test_the_page_works(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_report([small_run(tmp_path / "run")], page)
    browser.screen(1400, 900)
    browser.open(page)
    assert browser.run("document.querySelectorAll('main > section').length") > 8
    assert browser.run("document.querySelectorAll('.panel svg path').length") > 50
    # Every figure has a text alternative, also for programs that read the page aloud.
    words = browser.run(
        "[...document.querySelectorAll('figure')].map(f => (f.querySelector('[role=img]')"
        "?.ariaLabel ?? f.querySelector('img')?.alt ?? '').length)"
    )
    assert words
    assert min(words) > 40
    # A click sorts; the references stay below.
    assert first_column(browser)[0] == "etf-entropy (average)"
    browser.run("document.querySelectorAll('#headline thead button')[1].click()")
    falling = first_column(browser)
    assert falling == ["etf-attenuated (average)", "etf-entropy (average)", "fafi (average)"]
    browser.run("document.querySelectorAll('#headline thead button')[1].click()")
    assert first_column(browser) == falling[::-1]
    assert browser.run("document.querySelector('#headline th[aria-sort]').ariaSort") == "ascending"
    # A click opens details in place.
    browser.run("document.querySelector('#trials summary').click()")
    assert browser.run("document.querySelector('#trials details').open")
    assert browser.run("document.querySelector('#trials details table').offsetHeight") > 0
    # Nothing is wider than a phone; tables scroll by themselves.
    browser.screen(390, 800)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert browser.requests == [page.as_uri()]
    assert browser.problems == []


def test_light_and_dark(browser: Browser, tmp_path: Path) -> None:
    """The colours of the same SVG follow the page; hostile names are texts."""
    page = tmp_path / "page.html"
    given = full_trial("fafi", 0, [0.3, 0.5], clients=HOSTILE, classes=HOSTILE)
    write_report([write_run(tmp_path / "run", [given])], page)
    colours = []
    for dark in (False, True):
        browser.screen(1200, 800, dark=dark)
        browser.open(page)
        code = "getComputedStyle(document.querySelector('.panel svg text')).fill"
        ink = browser.run(code)
        paper = browser.run("getComputedStyle(document.body).backgroundColor")
        colours.append((ink, paper))
        assert ink != paper
        assert browser.problems == []
        assert browser.requests == [page.as_uri()]
    assert colours[0] != colours[1]
    assert browser.run("document.querySelectorAll('script').length") == 1
