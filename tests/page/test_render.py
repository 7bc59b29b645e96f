"""The page, Markdown and LaTeX: escaped, deterministic, small and self-contained."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from accord.page.progress import Drawn
from accord.page.render import latex, markdown
from accord.page.write import make_report
from page.made import full_trial, hostile_run, small_run
from written_runs import write_run

MEGABYTE = 1_000_000


class Page(HTMLParser):
    """The elements of a page, with their attributes, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page whose clients, classes and recipes have hostile names."""
    run = hostile_run(tmp_path_factory.mktemp("page") / "run")
    return make_report([run], "html")


def test_no_name_becomes_markup(page: str) -> None:
    found = Page(page)
    assert [tag for tag, _ in found.found].count("script") == 1
    assert not [tag for tag, about in found.found if tag == "img" and about.get("src") == "x"]
    assert not [name for _, about in found.found for name in about if name.startswith("on")]
    assert "\x1b" not in page
    shown = "".join(found.texts)
    for name in ("<script>alert(1)</script>", "$\\input{/etc/passwd}", "诊所 α_1 & 50%"):
        assert name in shown


def test_the_page_needs_nothing_else(page: str) -> None:
    found = Page(page).found
    for tag, about in found:
        for key in ("src", "href", "action", "data", "poster", "srcset", "xlink:href"):
            value = about.get(key) or ""
            assert not value or value.startswith(("#", "data:")), (tag, value)
    assert not re.search(r"url\((?!#)|@import", page)
    (policy,) = [about["content"] for _, about in found if about.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.split("script-src")[1]


def test_ids_are_unique_and_references_lead_somewhere(page: str) -> None:
    found = Page(page).found
    ids = [about["id"] for _, about in found if "id" in about]
    assert len(set(ids)) == len(ids)
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', page)
    assert {*used} <= {*map(str, ids)}


def test_figures_have_words_and_colours_of_the_page(page: str) -> None:
    found = Page(page).found
    figures = [tag for tag, _ in found].count("figure")
    told = [about for _, about in found if about.get("role") == "img"]
    assert figures == len(told) > 4
    assert all(len(about.get("aria-label") or "") > 40 for about in told)
    drawn = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.S))
    assert "currentColor" in drawn
    assert "var(--s0)" in drawn
    assert not re.search(r"(?:fill|stroke): #", drawn)  # every colour depends on the page
    assert "<text" in drawn


def test_equal_records_give_equal_bytes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [full_trial("fafi", seed, [0.3, 0.5]) for seed in (0, 1)])
    assert make_report([run], "html") == make_report([run], "html")


def test_a_hundred_trials_fit_into_5_megabytes(tmp_path: Path) -> None:
    names = [f"class {number}" for number in range(10)]
    clients = [f"{number}" for number in range(10)]
    trials = [
        full_trial(f"r{r}", s, [0.3, 0.5, 0.6], alpha=a, classes=names, clients=clients)
        for r in range(5)
        for s in range(5)
        for a in (1.0, 0.5, 0.1, 0.05)
    ]
    run = write_run(tmp_path / "run", trials, {"partition": {"alpha": [1.0, 0.5, 0.1, 0.05]}})
    text = make_report([run], "html")
    assert text.count('<details class="more">') >= 100
    assert len(text.encode()) < 5 * MEGABYTE


def test_markdown_shows_names_as_they_are() -> None:
    assert markdown.escape("a|b `c` <d> *e* \x1b[0m\n# f") == (
        r"a\|b \`c\` &lt;d&gt; \*e\* �\[0m \# f"
    )


def test_the_tables_in_markdown_keep_their_shape(tmp_path: Path) -> None:
    text = make_report([hostile_run(tmp_path / "run")], "markdown")
    assert "<script" not in text
    assert "\x1b" not in text
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block


def test_no_name_is_a_command_in_latex() -> None:
    assert latex.escape(r"$\input{/etc/passwd}") == r"\$\textbackslash{}input\{/etc/passwd\}"
    assert latex.escape("50 % & a_b # ^ ~ -- [x]") == (
        r"50 \% \& a\_b \# \textasciicircum{} \textasciitilde{} -{}- {[}x{]}"
    )
    assert latex.escape("α ± λ −") == (
        r"\ensuremath{\alpha} \ensuremath{\pm} \ensuremath{\lambda} \ensuremath{-}"
    )
    assert latex.escape("诊所") == "诊所"


def test_latex_names_the_packages_it_needs(tmp_path: Path) -> None:
    plain = make_report([small_run(tmp_path / "plain")], "latex")
    assert r"\usepackage{booktabs,textcomp}" in plain
    assert "ctex" not in plain
    assert plain.count(r"\begin{table}") == plain.count(r"\end{table}") >= 3
    body = plain.split("\n\n", 1)[1]
    assert body.isascii()  # every sign of the report itself has a command
    chinese = make_report([hostile_run(tmp_path / "chinese")], "latex")
    assert "ctex" in chinese
    assert r"\input{" not in chinese
    known = {"begin", "end", "centering", "caption", "toprule", "midrule", "bottomrule", "textbf"}
    known |= {"scriptsize", "input", "usepackage"}
    used = set(re.findall(r"\\([a-zA-Z]+)", chinese))
    assert used <= known | set(re.findall(r"\\([a-zA-Z]+)", "".join(latex.SPECIAL.values())))


def test_progress_is_told_when_it_takes_long() -> None:
    now, told = [0.0], list[str]()
    heard = Drawn(told.append, lambda: now[0]).heard
    for done in range(1, 11):
        now[0] += 2
        heard(done, 10)
    assert told == ["figure 3 of 10, about 14 s left", "figure 6 of 10, about 8 s left",
                    "figure 9 of 10, about 2 s left"]  # fmt: skip
