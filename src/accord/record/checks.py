"""Checks of the values in a record's JSON files, so that later code can rely on their kinds.

A record may be damaged, or changed by hand. A value of the wrong kind is refused here, with its
place, instead of causing an error or a wrong table later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]
LARGEST = 2**63  # no number of a record is larger


def text(value: Any) -> bool:
    return isinstance(value, str)


def truth(value: Any) -> bool:
    return isinstance(value, bool)


def number(value: Any) -> bool:
    """A number; also NaN and infinity, which are the losses of a training that failed."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < LARGEST


def count(value: Any) -> bool:
    return isinstance(value, int) and number(value) and value >= 0


def share(value: Any) -> bool:
    return number(value) and math.isfinite(value) and 0 <= value <= 1


def amount(value: Any) -> bool:
    """A finite number that is not negative, such as seconds."""
    return number(value) and math.isfinite(value) and value >= 0


def mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def dial(value: Any) -> bool:
    """A value of telemetry."""
    return value is None or number(value) or truth(value) or text(value)


def perhaps(check: Check) -> Check:
    return lambda value: value is None or check(value)


def each(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def mapping_of(check: Check) -> Check:
    return lambda value: isinstance(value, Mapping) and all(map(check, value.values()))


# What is expected of a key, in words, and its check.
TRIAL: dict[str, tuple[str, Check]] = {
    **dict.fromkeys(("id", "status", "study", "dataset", "partition", "recipe"), ("text", text)),
    "failures": ("a list of texts", each(text)),
    "alpha": ("a number or null", perhaps(number)),
    "clients": ("a count", perhaps(count)),
    "seed": ("a whole number, 0 or more", count),
    "label_counts": ("lists of counts", each(each(count))),
    "client_files": ("a mapping of texts", mapping_of(text)),
    "classes": ("a list of texts", each(text)),
    "idle": ("a list of texts", each(text)),
    "rounds": ("a list of mappings", each(mapping)),
    "config": ("a mapping", mapping),
    "versions": ("a mapping of texts", mapping_of(text)),
    **{
        key: ("a number, 0 or more", perhaps(amount))
        for key in (
            "upload_bytes",
            "download_bytes",
            "seconds",
            "core_seconds",
            "peak_memory_bytes",
        )
    },
}
SECTIONS = ("data", "partition", "shift", "net", "budget", "rounds", "mergenet", "teacher")
CONFIG: dict[str, tuple[str, Check]] = {
    **dict.fromkeys((*SECTIONS, "recipe", "options"), ("a mapping", mapping)),
    "fusions": ("a list of mappings with `as`", each(lambda one: mapping(one) and "as" in one)),
}
CHECKPOINT: dict[str, tuple[str, Check]] = {
    "round": ("a whole number, 0 or more", count),
    "rounds_before": ("a whole number, 0 or more", count),
    "epoch": ("a whole number, 0 or more", count),
    "took_part": ("a list of texts", each(text)),
    "fusions": ("a mapping of mappings", mapping_of(mapping)),
    "clients": ("a list of mappings", each(mapping)),
    **{key: ("a number or null", perhaps(number)) for key in ("train_loss", "train_accuracy")},
    **{
        key: ("a number, 0 or more", perhaps(amount))
        for key in ("seconds", "server_seconds", "upload_bytes", "download_bytes")
    },
}
SHARES = (
    *("accuracy", "top5", "accuracy_before", "balanced_accuracy", "worst_class", "ece"),
    *("validation_accuracy", "personal_accuracy", "site_worst", "site_mean", "own_accuracy"),
)
FUSION: dict[str, tuple[str, Check]] = {
    **{key: ("a number from 0 to 1 or null", perhaps(share)) for key in SHARES},
    "accuracy": ("a number from 0 to 1", share),
    "loss": ("a number or null", perhaps(number)),
    "site_spread": ("a number or null", perhaps(number)),
    "exchanges": ("a count", perhaps(count)),
    "confusion": ("lists of numbers", perhaps(each(each(number)))),
    "sites": ("a mapping of mappings", mapping_of(mapping)),
}
AT_SITE = {**FUSION, "accuracy": ("a number from 0 to 1 or null", perhaps(share))}
AT_CLIENT: dict[str, tuple[str, Check]] = {
    "client": ("text", text),
    **{
        key: ("a number from 0 to 1 or null", perhaps(share))
        for key in ("train_accuracy", "test_accuracy", "neighbours")
    },
}
NEEDED = tuple(key for key in CHECKPOINT if key not in ("clients", "rounds_before"))
IN_EVENTS = ("client", "train_accuracy", "test_accuracy")
EVENT: dict[str, tuple[str, Check]] = {
    "client": ("text", text),
    "epoch": ("a whole number, 0 or more", count),
    "round": ("a whole number, 0 or more", count),
}


def check_trial(info: Mapping[str, Any]) -> None:
    """Raises ValueError if a value of trial.json has the wrong kind."""
    _check(info, TRIAL, "")
    _check(info.get("config") or {}, CONFIG, "config.")


def check_measures(checkpoints: list[Any]) -> None:
    """Raises ValueError if a value of measures.json has the wrong kind."""
    for place, checkpoint in enumerate(checkpoints):
        where = f"checkpoints[{place}]"
        if not mapping(checkpoint):
            raise ValueError(f"{where}: expected a mapping, found {_shown(checkpoint)}")
        _check(checkpoint, CHECKPOINT, f"{where}.", NEEDED)
        for name, found in checkpoint["fusions"].items():
            inside = f"{where}.fusions.{name}."
            _check(found, FUSION, inside, ("accuracy",))
            for site, figures in found.get("sites", {}).items():
                _check(figures, AT_SITE, f"{inside}sites.{site}.", ("accuracy", "took_part"))
        for number_of, client in enumerate(checkpoint.get("clients", ())):
            _check(client, AT_CLIENT, f"{where}.clients[{number_of}].", IN_EVENTS)


def check_event(event: Any) -> None:
    """Raises ValueError if a line of events.jsonl is no event."""
    if not mapping(event):
        raise ValueError(f"expected a mapping, found {_shown(event)}")
    _check(event, EVENT, "", ("client", "epoch"))
    odd = [key for key, value in event.items() if not dial(value)]
    if odd:
        raise ValueError(
            f"{odd[0]}: expected a number, text or null, found {_shown(event[odd[0]])}"
        )


def _check(
    values: Mapping[str, Any],
    expected: Mapping[str, tuple[str, Check]],
    where: str,
    needed: tuple[str, ...] = (),
) -> None:
    for key in needed:
        if key not in values:
            raise ValueError(f"{where}{key} is missing")
    for key, (words, check) in expected.items():
        if key in values and not check(values[key]):
            raise ValueError(f"{where}{key}: expected {words}, found {_shown(values[key])}")


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and not number(value) and not truth(value):
        return "a number of many digits"
    return repr(value)[:60]
