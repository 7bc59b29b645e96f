"""The figure of a trial's dials: λ of each client, σ², losses and gradients over epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accord.core.names import shown
from accord.page.figures.curves import Curve, Level, curves
from accord.page.figures.style import BLACK, MARKERS, MOST
from accord.page.parts import Figure, Key, Panel
from accord.page.telemetry import is_constant, number, over_clients, positive
from accord.report.evidence import Evidence, Series

# What each panel of the figure shows: its title and axis, and its dials with their names.
LOCAL, ALIGNMENT = "local loss", "alignment loss"
GROUPS: tuple[tuple[str, str, bool, dict[str, str]], ...] = (
    (
        *("Learnt uncertainties", "σ²", True),
        {"sigma_sq_local": LOCAL, "sigma_sq_align": ALIGNMENT},
    ),
    ("Losses", "mean over the epoch", True, {"loss_local": LOCAL, "loss_align": ALIGNMENT}),
    (
        *("Norms of the gradients", "norm", True),
        {"gradient_norm_local": LOCAL, "gradient_norm_align": ALIGNMENT},
    ),
    ("Conflict of the gradients", "cosine of both gradients", False, {"gradient_cosine": ""}),
)
STYLES = ((BLACK, "-", "o"), (None, "--", "s"))  # of the local and of the alignment loss


def dial_figure(trial: Evidence, words: str) -> Figure | None:
    """None if the trial has no dials to show."""
    panels: list[Panel] = []
    told: list[str] = []
    keys: list[Key] = []
    for dial in _moving_lambdas(trial):
        panel, said, used = _lambda_panel(trial, dial)
        panels.append(panel)
        told.append(said)
        keys += [key for key in used if key not in keys]
    for title, axis, log, dials in GROUPS:
        found = _found(trial, dials, log)
        if found:
            panels.append(_panel(title, axis, log, found))
            told.append(_words(title, found))
            keys += [key for key, _ in found.values() if key.label and key not in keys]
    if not panels:
        return None
    caption = (
        f"{words}, seed {trial.seed}. "
        + ("λ: one colour per client. " if _moving_lambdas(trial) else "")
        + "Other panels: median over clients, with a band from the lowest to the highest client."
    )
    return Figure(panels, " ".join(told), caption, keys)


def _moving_lambdas(trial: Evidence) -> list[str]:
    names = trial.dials("lambda_effective")
    return [name for name in names if trial.series(name) and not is_constant(trial.series(name))]


def _lambda_panel(trial: Evidence, dial: str) -> tuple[Panel, str, list[Key]]:
    """λ per client: effective, raw where it differs, and predicted."""
    effective = positive(trial.series(dial))
    raw = positive(trial.series(dial.replace("lambda_effective", "lambda_raw")))
    star = positive(trial.series(dial.replace("lambda_effective", "lambda_star")))
    series: list[Curve] = []
    if len(effective) <= MOST:
        for index, (client, values) in enumerate(effective.items()):
            marker = MARKERS[index]
            series.append(_curve(Key(f"client {shown(client)}", index, "-", marker), values))
            if client in raw and raw[client] != values:
                series.append(_curve(Key("raw λ", index, "--"), raw[client]))
            if client in star:
                series.append(_curve(Key("λ*", index, ":"), star[client]))
        keys = [one.key for one in series if one.key.label.startswith("client ")]
    else:
        named = (("effective λ", effective, "-"), ("raw λ", raw, "--"), ("λ*", star, ":"))
        series = [_band(Key(n, i, line), s) for i, (n, s, line) in enumerate(named) if s]
        keys = [one.key for one in series]
    keys += [Key("effective λ", None, "-")] if len(effective) <= MOST else []
    if any(one.key.label == "raw λ" for one in series) and len(effective) <= MOST:
        keys.append(Key("raw λ", None, "--"))
    if star and len(effective) <= MOST:
        keys.append(Key("predicted λ*", None, ":"))
    title = "Weight of the alignment loss" + _term(dial)
    every = [value for values in effective.values() for value in values.values()]
    said = (
        f"{title}: effective λ between {number(min(every))} and {number(max(every))}"
        if every
        else title
    )
    ends = [
        f"client {shown(c)} ends at {number(v[max(v)])}" for c, v in list(effective.items())[:MOST]
    ]
    return curves(series, "epoch", "λ", title=title, log=True), "; ".join([said, *ends]) + ".", keys


def _term(dial: str) -> str:
    term = dial.removesuffix("lambda_effective").rstrip("_")
    return f", {shown(term)}" if term else ""


def _curve(key: Key, values: Mapping[int, float]) -> Curve:
    epochs = sorted(values)
    return Curve(key, epochs, [values[epoch] for epoch in epochs])


def _band(key: Key, series: Series) -> Curve:
    course = over_clients(series)
    several = len(series) > 1
    low, high = (course.low, course.high) if several else ((), ())
    return Curve(key, course.epochs, course.middle, low, high)


def _found(trial: Evidence, dials: Mapping[str, str], log: bool) -> dict[str, tuple[Key, Series]]:
    """Dial → its key and its values, for the dials that the trial has."""
    found: dict[str, tuple[Key, Series]] = {}
    for index, (kind, label) in enumerate(dials.items()):
        for name in trial.dials(kind):
            series = positive(trial.series(name)) if log else trial.series(name)
            if series:
                term = name.removesuffix(kind).rstrip("_")
                found[name] = (_key(index, label, term, len(found)), series)
    return found


def _key(index: int, label: str, term: str, place: int) -> Key:
    """The key of a dial; each of several alignment terms has a colour of its own."""
    colour, line, marker = STYLES[index]
    if not term:
        return Key(label, colour, line, marker)
    return Key(f"{label or 'cosine'} ({shown(term)})", place, line, MARKERS[place % MOST])


def _panel(title: str, axis: str, log: bool, found: Mapping[str, tuple[Key, Series]]) -> Panel:
    series = [_band(key, values) for key, values in found.values()]
    bounds = None if log else (-1.0, 1.0)
    levels: Sequence[Level] = () if log else (Level("", 0.0),)
    return curves(series, "epoch", axis, title=title, log=log, bounds=bounds, levels=levels)


def _words(title: str, found: Mapping[str, tuple[Key, Series]]) -> str:
    told = []
    for key, series in found.values():
        course = over_clients(series)
        whose = f" of the {key.label}" if key.label else ""
        ends = (number(course.middle[0]), number(course.middle[-1]))
        told.append(f"median{whose} from {ends[0]} to {ends[1]}")
    return f"{title}: {'; '.join(told)}."
