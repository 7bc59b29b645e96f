"""Checks a recipe: builds every part once, so that mistakes are reported before any training."""

from __future__ import annotations

from collections.abc import Mapping

from accord.balance import balances
from accord.core.budget import Budget
from accord.core.config import Config, check_alone, keys, parse
from accord.core.errors import AccordError, nearest
from accord.core.mergenet import MergeNetConfig
from accord.core.parts import make_part, part_spec, set_by_hand
from accord.fusion import fusions
from accord.fusion.base import Merge
from accord.fusion.named import NamedFusion
from accord.methods import Method, methods
from accord.nets.maps import MapConfig
from accord.nets.maps.kept import InModel
from accord.nets.settings import TeacherConfig
from accord.objective import Term, anchor_kinds, make_alignment, make_term
from accord.objective.bank import BankConfig
from accord.study.recipe import ClosedFormRecipe, Recipe, TrainingRecipe, kind_of
from accord.study.syntax import Spec, lay_over


def check(raw: Spec, where: str) -> Recipe:
    """The recipe that `raw` describes, with a value for every parameter."""
    raw = {key: value for key, value in lay_over({}, raw, where).items() if value is not None}
    kind = kind_of(raw)
    _refuse_unknown(raw, kind, where)
    if isinstance(raw.get("fusion"), list | tuple):
        raw["fusion"] = [NamedFusion.read(entry, f"{where}.fusion") for entry in raw["fusion"]]
    try:
        recipe = parse(kind, raw, where)
    except AccordError as error:
        if where in str(error):
            raise
        raise AccordError(f"{where}: {error}") from None
    _check_fusions(recipe, where)
    if isinstance(recipe, TrainingRecipe):
        return _check_training(recipe, where)
    if isinstance(recipe, ClosedFormRecipe):
        _check_map(recipe.map, where)
    return recipe


def _refuse_unknown(raw: Spec, kind: type[Recipe], where: str) -> None:
    """Refuses keys that no recipe has, or that only recipes of the other kind have."""
    known = [*keys(kind), "balance", "extends"]
    others = {*keys(TrainingRecipe), *keys(ClosedFormRecipe)}
    for key in raw:
        if key in known:
            continue
        if key in others:
            does, other = (
                ("trains nets, because it has no `map`", "sum fixed features")
                if kind is TrainingRecipe
                else ("sums fixed features, because it has a `map`", "train nets")
            )
            raise AccordError(
                f"{where}: this recipe {does}, and {key!r} is a key of recipes that {other}. Drop "
                "one of the two keys."
            )
        raise AccordError(
            f"{where}: unknown key {key!r}{nearest(str(key), known) or '.'} "
            f"Known: {', '.join(known)}."
        )


def _check_map(config: MapConfig, where: str) -> None:
    """Refuses keys that a trial sets. A block with a saved model keeps what it has read there."""
    for index, part in enumerate(config.parts):
        for key in [] if isinstance(part, InModel) else set_by_hand(part):
            raise AccordError(
                f"{where}.map.blocks[{index}]: {key!r} is set automatically. Remove it."
            )


def _check_fusions(recipe: Recipe, where: str) -> None:
    """Refuses fusions that cannot use what the recipe's clients upload, and repeated ones."""
    for place, fusion in enumerate(recipe.fusion):
        if fusion in recipe.fusion[:place]:
            raise AccordError(f"{where}.fusion: {fusion.label!r} is listed twice. Remove one.")
        if not recipe.can_use(fusion):
            raise AccordError(
                f"{where}.fusion: {fusion.use!r} is the server's net after a round of a method "
                f"with several rounds; found the method {recipe.method_name}. Use another fusion, "
                "or the method averaging."
            )
        if fusion.rule.of != recipe.uploads:
            known = {name: make_part(fusions, name, "fusion").of for name in fusions}
            fitting = [name for name, of in known.items() if of == recipe.uploads]
            raise AccordError(
                f"{where}.fusion: {fusion.use!r} fuses {fusion.rule.of}, but the recipe's "
                f"clients upload {recipe.uploads}. Expected one of: {', '.join(fitting)}."
            )


def _check_training(recipe: TrainingRecipe, where: str) -> TrainingRecipe:
    if not recipe.objective:
        raise AccordError(f"{where}.objective: expected at least one term; found none.")
    objective = {
        name: _spelled_out(make_term(name, spec, f"{where}.objective.{name}"))
        for name, spec in recipe.objective.items()
    }
    align = {
        name: {
            **_without_weight(make_alignment(name, spec, f"{where}.align.{name}")),
            "balance": _balance(spec, objective, f"{where}.align.{name}.balance"),
        }
        for name, spec in recipe.align.items()
    }
    _check_names(recipe, where)
    _check_sections(recipe, where)
    _refuse_two_on_local(align, where)
    method = make_part(methods, recipe.method, f"{where}.method")
    filled = method.filled(recipe.fusion[0].spec, where)
    checked = {
        "objective": objective,
        "align": align,
        "anchors": _anchors(recipe, where),
        "bank": _bank(recipe, where),
        "method": part_spec(recipe.method["use"], filled),
        "fusion": _with_starting_net(recipe, filled, where),
    }
    return recipe.model_copy(update=checked)


def _with_starting_net(
    recipe: TrainingRecipe, method: Method, where: str
) -> tuple[NamedFusion, ...]:
    """The recipe's fusions; beside the server's net also the net that the method starts from."""
    enriched = any(isinstance(f.rule, Merge) and f.rule.after_advance for f in recipe.fusion)
    if method.starts_from is None or not enriched:
        return recipe.fusion
    start = NamedFusion.read(method.starts_from, f"{where}.method.merge")
    known = any(fusion.rule == start.rule for fusion in recipe.fusion)
    return recipe.fusion if known else (*recipe.fusion, start)


def _check_names(recipe: TrainingRecipe, where: str) -> None:
    """Refuses names of unknown terms, terms that occur twice, and keys that need another key."""
    unknown = [name for name in recipe.single_class if name not in recipe.objective]
    if unknown:
        raise AccordError(
            f"{where}.single_class: {unknown[0]!r} is no term of the objective; found "
            f"{', '.join(recipe.objective)}."
        )
    twice = sorted(set(recipe.objective) & set(recipe.align))
    if twice:
        raise AccordError(
            f"{where}: {twice[0]!r} is in both objective and align; expected it in one of them. "
            f"Write objective: {{{twice[0]}: null}} to use it as an alignment term only."
        )
    if recipe.copies > 1 and not recipe.pooled:
        raise AccordError(
            f"{where}.copies: only a pooled recipe can train several nets on the same images; "
            f"found {recipe.copies}. Set pooled, or remove copies."
        )
    if recipe.alignment_epochs and not recipe.align:
        raise AccordError(
            f"{where}.alignment_epochs: these epochs need a term in `align`; found none."
        )


def _check_sections(recipe: TrainingRecipe, where: str) -> None:
    """Checks the values that replace those of the study's sections."""
    sections: dict[str, tuple[Spec, type[Config]]] = {
        "budget": (recipe.budget, Budget),
        "mergenet": (recipe.mergenet, MergeNetConfig),
        "teacher": (recipe.teacher, TeacherConfig),
    }
    for name, (own, model) in sections.items():
        unknown = [key for key in own if key not in keys(model)]
        if unknown:
            hint = nearest(unknown[0], keys(model)) or "."
            raise AccordError(f"{where}.{name}: unknown key {unknown[0]!r}{hint}")
        check_alone(model, own, f"{where}.{name}")
    if recipe.mergenet and not recipe.uses_mergenet:
        raise AccordError(
            f"{where}.mergenet: these settings are for the method mergenet; found the method "
            f"{recipe.method['use']}. Set method: mergenet, or remove them."
        )
    if recipe.teacher and not recipe.may_use_teacher:
        raise AccordError(
            f"{where}.teacher: no part of the recipe uses a teacher. Set method: mergenet or "
            "from-teacher, add the term distillation, or remove these settings."
        )


def _anchors(recipe: TrainingRecipe, where: str) -> Spec | None:
    if recipe.anchors:
        part = make_part(anchor_kinds, recipe.anchors, f"{where}.anchors")
        return part_spec(recipe.anchors["use"], part)
    if "anchors" in recipe.align or recipe.head == "anchors":
        needs = "the term" if "anchors" in recipe.align else "the head"
        raise AccordError(f"{where}.anchors is missing: {needs} 'anchors' needs one, e.g. etf.")
    return None


def _bank(recipe: TrainingRecipe, where: str) -> BankConfig | None:
    """The settings of the bank if a term uses it. A bank that no term uses is refused."""
    local = [make_term(name, spec, where) for name, spec in recipe.objective.items()]
    align = [make_alignment(name, spec, where) for name, spec in recipe.align.items()]
    if any(term.uses_bank() for term in (*local, *align)):
        if recipe.may_use_teacher:
            raise AccordError(
                f"{where}: a recipe has one teacher, either for a bank or for MergeNet and "
                "distillation. Remove the terms of one of them."
            )
        return recipe.bank or BankConfig()
    if recipe.bank:
        raise AccordError(
            f"{where}.bank: no term of the recipe uses it. Set objective.contrast.bank to others, "
            "add an alignment term such as mmd, or remove the bank."
        )
    return None


def _refuse_two_on_local(align: Mapping[str, Spec], where: str) -> None:
    """A rule that mixes ∇L_loc with another gradient must be the only one that changes ∇L_loc."""
    rules = {name: balances.get(spec["balance"]["use"]) for name, spec in align.items()}
    mixing = [name for name, rule in rules.items() if rule.mixes_gradients]
    changing = [n for n, rule in rules.items() if rule.mixes_gradients or rule.weighs_local]
    if mixing and len(changing) > 1:
        raise AccordError(
            f"{where}.align: the balance of {mixing[0]!r} mixes the local gradient, and so no "
            f"other balance may change it; found {', '.join(changing)}. Give the others a rule "
            "that does not change the local loss, such as fixed."
        )


def _spelled_out(term: Term) -> Spec:
    return term.model_dump(mode="json", by_alias=True)


def _without_weight(term: Term) -> Spec:
    return {key: value for key, value in _spelled_out(term).items() if key != "weight"}


def _balance(spec: Spec, objective: Mapping[str, Spec], where: str) -> Spec:
    """The balance of an alignment term, with a value for every parameter."""
    if not spec or "balance" not in spec:
        raise AccordError(
            f"{where} is missing: an alignment term needs a balance, e.g. "
            "balance: {use: fixed, lambda: 5}."
        )
    raw = spec["balance"]
    rule = make_part(balances, raw, where)
    if rule.watched() is not None and rule.watched() not in objective:
        raise AccordError(
            f"{where}: this rule watches the local term {rule.watched()!r}; found "
            f"{', '.join(objective)}. Set its `watch` to one of these."
        )
    return part_spec(raw if isinstance(raw, str) else raw["use"], rule)
