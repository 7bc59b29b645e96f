"""How the local and the alignment loss were weighed: λ, σ, losses and gradients."""

from __future__ import annotations

from accord.core.names import shown
from accord.page.figures.dials import dial_figure
from accord.page.kinds import Kind, kinds_of
from accord.page.parts import Cell, Column, Details, Part, Prose, Table
from accord.page.section import section
from accord.page.subject import Subject
from accord.page.tables.dials import client_table, course_table, explosion_table
from accord.page.telemetry import all_values, is_constant, number
from accord.report.comparison import percent

OPEN = 3  # recipes whose λ changes and that are shown at once; the others on request
MOST = 24


@section("balance", "Balance and training", 50)
def balance(subject: Subject) -> list[Part]:
    kinds = [kind for kind in kinds_of(subject) if kind.first.events]
    if not kinds:
        return []
    moving = [kind for kind in kinds if _lambdas(kind) and not _steady(kind)]
    moving.sort(key=lambda kind: -max(all_values(kind.trials, _lambdas(kind)[0])))
    others = [kind for kind in kinds if kind not in moving]
    parts: list[Part] = []
    if any(_lambdas(kind) for kind in kinds):
        parts.append(_strategies(kinds))
    for index, kind in enumerate([*moving, *others][:MOST]):
        about = _about(kind)
        if not about:
            continue
        title = f"{kind.words}, seed {kind.first.seed}"
        if kind in moving and index < OPEN:
            parts += [Prose(f"{title}:"), *about]
        else:
            parts.append(Details(title, about))
    if len(kinds) > MOST:
        parts.append(Prose(f"Further recipes and settings: {len(kinds) - MOST}.", quiet=True))
    return parts


def _lambdas(kind: Kind) -> list[str]:
    names = [dial for dial in kind.first.dials("lambda_effective") if kind.first.series(dial)]
    return names or [dial for dial in kind.first.dials("lambda_raw") if kind.first.series(dial)]


def _steady(kind: Kind) -> bool:
    return all(is_constant(kind.first.series(dial)) for dial in _lambdas(kind))


def _about(kind: Kind) -> list[Part]:
    """The figure and the tables of one recipe, for its first seed."""
    trial = kind.first
    figure = dial_figure(trial, kind.words)
    parts: list[Part] = [figure] if figure else []
    for dial in _lambdas(kind):
        if is_constant(trial.series(dial)):
            parts.append(client_table(trial, dial))
        else:
            parts += [
                explosion_table(trial, dial),
                Details("λ of every client", [course_table(trial, dial)]),
            ]
    return parts


def _strategies(kinds: list[Kind]) -> Table:
    """Strategy × accuracy × range of λ."""
    heads = ("recipe", "setting", "balance", "accuracy %", "λ at first", "λ at last", "largest λ")
    rows = []
    for kind in kinds:
        for dial in _lambdas(kind) or [""]:
            first = all_values(kind.trials, dial, last=False) if dial else []
            last = all_values(kind.trials, dial, last=True) if dial else []
            every = all_values(kind.trials, dial) if dial else []
            values = kind.accuracies
            rows.append(
                [
                    Cell(shown(kind.recipe)),
                    Cell(kind.setting or "–"),
                    Cell(_rule(kind, dial)),
                    Cell(percent(values), sum(values) / len(values) if values else None),
                    _range(first),
                    _range(last),
                    Cell(number(max(every)), max(every)) if every else Cell("–"),
                ]
            )
    rows.sort(key=lambda row: -(row[3].value or 0))
    columns = [Column(head, number=index > 2) for index, head in enumerate(heads)]
    notes = [
        "λ: the weight of the alignment loss as it acts on the net (effective λ), from the lowest "
        "to the highest client, over all seeds, in the first and in the last epoch."
    ]
    return Table(columns, rows, title="Strategies", notes=notes)


def _rule(kind: Kind, dial: str) -> str:
    """The name of the balance, such as `uncertainty`."""
    recipe = kind.first.config.get("recipe")
    terms = recipe.get("align") if isinstance(recipe, dict) else None
    if not isinstance(terms, dict) or not terms:
        return "none"
    rules = {
        str(term): str(about["balance"].get("use"))
        for term, about in terms.items()
        if isinstance(about, dict) and isinstance(about.get("balance"), dict)
    }
    if len(rules) > 1 and dial:
        return next((f"{t}: {r}" for t, r in rules.items() if dial.startswith(t)), "–")
    return shown(next(iter(rules.values()), "–"))


def _range(values: list[float]) -> Cell:
    if not values:
        return Cell("–")
    low, high = min(values), max(values)
    same = number(low) == number(high)
    return Cell(number(low) if same else f"{number(low)} to {number(high)}", high)
