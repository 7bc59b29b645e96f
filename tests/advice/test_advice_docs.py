"""The documentation gives the advice of the rules, and its pages hold the evidence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from accord.advice.choosing import choose
from accord.advice.remarks import warnings
from accord.advice.rules import RULES
from accord.advice.table import BEGIN, END, markdown, short_markdown
from accord.cli import app
from advice.federations import even
from command_line import Here

ROOT = Path(__file__).resolve().parents[2]
ADVICE = (ROOT / "docs/advice.md").read_text()


def table_in(text: str) -> str:
    return text[text.index(BEGIN) : text.index(END) + len(END)]


def without_table(text: str) -> str:
    return text.replace(table_in(text), "") if BEGIN in text else text


def test_the_tables_are_those_of_the_rules(here: Here) -> None:
    assert table_in(ADVICE) == markdown(folder="")
    assert here("advise", "--table").out.strip() == markdown()
    readme = (ROOT / "README.md").read_text()
    assert table_in(readme) == short_markdown()


def test_every_page_holds_its_evidence() -> None:
    """Every figure that a rule cites is printed on its page, outside of the table of the rules."""
    for rule in RULES:
        found = rule.evidence
        page = without_table((ROOT / found.page).read_text())
        study = found.study
        assert study in page, rule.use
        assert (ROOT / study).is_file() or study.startswith("python -m benchmarks ")
        assert found.figure in found.says, rule.use
        figures = re.findall(r"\d+\.\d+(?: ± \d+\.\d+)?(?= | and |,|;)", found.says)
        cited = [figure for figure in figures if f"α = {figure}" not in found.says]
        assert cited, rule.use
        for figure in cited:
            assert figure in page, (rule.use, figure)


def test_the_figures_of_a_warning_are_on_its_page() -> None:
    facts = even(5, 1_000, exchanges=5)
    (warning,) = [one for one in warnings(facts, choose(facts)[0]) if "docs/rounds.md" in one]
    page = (ROOT / "docs/rounds.md").read_text()
    figures = re.findall(r"\d+\.\d+", warning)
    assert len(figures) == 2
    assert all(figure in page for figure in figures)


@pytest.mark.parametrize("page", ["balance", "fusion", "closed-form"])
def test_other_pages_point_to_the_advice(page: str) -> None:
    assert "(advice.md)" in (ROOT / f"docs/{page}.md").read_text()


def test_every_option_is_explained() -> None:
    command = get_command(app).commands["advise"]  # type: ignore[attr-defined]
    shared = {"data_root", "workers"}
    for option in command.params:
        if option.param_type_name == "option" and option.name not in shared:
            words = (*option.opts, *option.secondary_opts)
            assert any(f"`{word}" in ADVICE for word in words), option.name
