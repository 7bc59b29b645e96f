"""Every link of the documentation leads somewhere, and the glossary is complete and in order."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# The words of the design, and those of the field that the pages use.
WORDS = """
study, trial, recipe, client, briefing, upload, balance, fusion, engine, site, record, checkpoint,
round, method, server state, anchors, ETF, prototype, bank, lambda (λ), sigma (σ), alpha (α),
gamma (γ), Dirichlet, label skew, ECE, calibration, accuracy, balanced accuracy, worst class, GCV,
ridge regression, map (φ), sums, scatter, references, central, local-only, telemetry, dials,
teacher, public images, seed, predictor, one-shot, partition, closed form, distillation
"""


def prose(text: str) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


@cache
def anchors(path: Path) -> list[str]:
    return [slug(heading) for heading in re.findall(r"^#+ (.*)$", prose(path.read_text()), re.M)]


def broken(path: Path, text: str) -> list[str]:
    """The links in `text`, a page at `path`, that lead nowhere."""
    found = []
    for target in LINK.findall(prose(text)):
        if re.match(r"[a-z]+:", target):
            continue  # another site
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            found.append(target)
    return found


def test_every_link_leads_somewhere() -> None:
    assert sum(len(LINK.findall(path.read_text())) for path in PAGES) > 150
    assert {path.name: broken(path, path.read_text()) for path in PAGES} == {
        path.name: [] for path in PAGES
    }


def test_a_broken_link_is_found() -> None:
    page = ROOT / "docs" / "study.md"
    assert broken(page, "[a](nowhere.md) [b](balance.md#nothing) [c](#partition)") == [
        "nowhere.md",
        "balance.md#nothing",
    ]
    assert slug("`studies/x.yaml` (note 003): why λ [diverges](y.md)") == (
        "studiesxyaml-note-003-why-λ-diverges"
    )


def test_files_that_texts_name_exist() -> None:
    """docs/….md and studies/….yaml, in pages, studies, docstrings and messages."""
    named = re.compile(r"\b(?:docs/[\w-]+\.md|studies/[\w-]+\.yaml)")
    texts = [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.yaml")]
    texts += [*(ROOT / "studies").glob("*.yaml"), *(ROOT / "benchmarks").glob("*.py")]
    found = {name for path in texts for name in named.findall(path.read_text())}
    assert len(found) > 20
    assert sorted(name for name in found if not (ROOT / name).exists()) == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    further = [ROOT / "README.md"]
    while further:
        page = further.pop()
        reached.add(page)
        links = (target.partition("#")[0] for target in LINK.findall(prose(page.read_text())))
        files = {(page.parent / name).resolve() for name in links if name.endswith(".md")}
        further += files - reached
    assert set(PAGES) <= reached


def test_the_glossary_is_complete_and_in_order() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    words = re.findall(r"^### (.*)$", text, re.M)
    assert words == sorted(words, key=str.casefold)
    assert len(words) == len({word.casefold() for word in words})
    assert {word.strip() for word in WORDS.replace("\n", " ").split(",")} <= set(words)
    for word, said in zip(words, re.split(r"^### .*$", text, flags=re.M)[1:], strict=True):
        plain = LINK.sub("", said)
        assert 3 <= len(plain.split()) <= 70, word
        assert said.rstrip().endswith((".", ")")), word
