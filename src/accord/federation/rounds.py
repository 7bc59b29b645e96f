"""The rounds of a trial: the clients that each round asks, its files, and whether it is closed."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from accord.checks import check_file
from accord.checks.alike import digest_of_work, pairs_alike
from accord.core.config import Config
from accord.core.errors import AccordError
from accord.core.files import link_or_copy, read_json, write_json
from accord.core.names import shown
from accord.core.randomness import numpy_generator
from accord.core.text import one_line
from accord.core.threads import one_thread
from accord.federation.tasks.base import briefing_at
from accord.messages import Briefing, Upload
from accord.record.folders import RoundFolder, TrialFolder, mapping
from accord.study.settings import RoundsConfig
from accord.study.study import Trial


class RoundReport(Config):
    """The content of round.json, which is written when no more answers are expected."""

    round: int
    asked: tuple[str, ...]
    answered: tuple[str, ...]
    failed: dict[str, str]  # client → reason
    upload_bytes: int
    download_bytes: int
    seconds: float  # training time on one core, summed over clients
    server_seconds: float | None = None  # time in which the server made the state after the round
    fusion_applied: bool | None = None  # whether knowledge was fused; None if it never is
    label_counts: dict[str, tuple[int, ...]] = Field(default={})  # of sites with own images


@dataclass(frozen=True, eq=False)
class Round:
    """One round of a trial: a briefing to the clients, and their uploads."""

    number: int
    folder: RoundFolder
    asked: tuple[str, ...]
    needed: int  # number of uploads that the round needs to continue
    epochs: tuple[int, ...]  # its checkpoints; epochs are counted over all rounds

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1]

    def upload(self, client: str, epoch: int) -> Path:
        return self.folder.upload(client, epoch, last=epoch == self.last_epoch)

    def has_answered(self, client: str) -> bool:
        """Whether all uploads of a client exist, also those of earlier checkpoints."""
        return all(self.upload(client, epoch).exists() for epoch in self.epochs)

    def refusal(self, client: str, counts: Sequence[int] | None) -> str | None:
        """Why a client's uploads are refused; None if they are good.

        `counts` are the label counts of the client's images, if the server knows them. Bad uploads
        are put aside, with the ending .refused, so that the client counts as missing.
        """
        briefing = briefing_at(self.folder.briefing)
        try:
            for epoch in self.epochs:
                path = self.upload(client, epoch)
                if path.exists() or epoch == self.last_epoch:  # others are deleted in time
                    with one_thread():
                        _check(path, client, epoch, counts, briefing)
        except AccordError as error:
            self._put_aside(client)
            return f"its upload was refused: {one_line(str(error))}"
        return None

    def refuse_copies(self, known: Callable[[str, str], bool]) -> dict[str, str]:
        """Client → why its upload is refused: another client sent the same weights or sums.

        Nobody knows which one is the copy, so that both are put aside. `known` says whether two
        clients hold the same images.
        """
        there = [c for c in self.asked if self.upload(c, self.last_epoch).exists()]
        briefing = briefing_at(self.folder.briefing)
        uploads = ((c, Upload.load(self.upload(c, self.last_epoch))) for c in there)
        works = [(client, digest_of_work(upload, briefing)) for client, upload in uploads]
        refused = {}
        for pair in pairs_alike(works, known):
            for client, other in (pair, pair[::-1]):
                self._put_aside(client)
                refused[client] = (
                    f"its upload was refused: client {shown(other)} sent the same weights or sums, "
                    "bit for bit. One is a copy of the other, or both have the same images."
                )
        return refused

    def _put_aside(self, client: str) -> None:
        for path in (self.upload(client, epoch) for epoch in self.epochs):
            if path.exists():
                path.replace(path.with_name(f"{path.name}.refused"))

    def unanswered(self) -> list[str]:
        return [client for client in self.asked if not self.has_answered(client)]

    @property
    def closed(self) -> bool:
        return self.folder.report.exists()

    @property
    def answered(self) -> tuple[str, ...]:
        """The clients whose uploads are used; before the round is closed, all that were asked."""
        return self.report.answered if self.closed else self.asked

    @property
    def report(self) -> RoundReport:
        path = self.folder.report
        try:
            return RoundReport.model_validate(mapping(read_json(path), path))
        except ValueError as error:
            raise AccordError(
                f"{path} is damaged: {' '.join(str(error).split())}. Delete the trial's folder and "
                "run the study again."
            ) from None

    def close(
        self,
        failed: dict[str, str],
        fusion_applied: bool | None = None,
        *,
        keep_counts: bool = False,
    ) -> None:
        """Writes round.json: the clients that answered or failed, bytes and seconds.

        `keep_counts`: also the label counts, for a server that knows them from uploads alone.
        """
        answered = tuple(client for client in self.asked if self.has_answered(client))
        uploads = [self.upload(client, self.last_epoch) for client in answered]
        report = RoundReport(
            round=self.number,
            asked=self.asked,
            answered=answered,
            failed={name: failed[name] for name in self.asked if name in failed},
            upload_bytes=sum(path.stat().st_size for path in uploads),
            download_bytes=self.folder.briefing.stat().st_size * len(self.asked),
            seconds=sum(sum(self.folder.read_seconds(name).values()) for name in answered),
            fusion_applied=fusion_applied,
            label_counts=self._counts(answered) if keep_counts else {},
        )
        write_json(self.folder.report, report.model_dump(mode="json"))

    def _counts(self, answered: Sequence[str]) -> dict[str, tuple[int, ...]]:
        uploads = {name: Upload.load(self.upload(name, self.last_epoch)) for name in answered}
        return {n: tuple(u.tensors["label_counts"].tolist()) for n, u in uploads.items()}

    def forget_checkpoints(self) -> None:
        """Removes uploads of earlier checkpoints and saved states of interrupted clients."""
        for client in self.asked:
            for epoch in self.epochs[:-1]:
                self.upload(client, epoch).unlink(missing_ok=True)
        shutil.rmtree(self.folder.path / "state", ignore_errors=True)

    def forget(self) -> None:
        """Removes all files of a measured round except its report.

        The first briefing is kept, because it holds the initial weights of the trial.
        """
        self.forget_checkpoints()
        for name in ("uploads", "seconds"):
            shutil.rmtree(self.folder.path / name, ignore_errors=True)
        self.folder.server_state.unlink(missing_ok=True)
        if self.number > 1:
            self.folder.briefing.unlink(missing_ok=True)


def _check(
    path: Path, client: str, epoch: int, counts: Sequence[int] | None, briefing: Briefing
) -> None:
    """Raises AccordError unless a file holds the upload of `client` after `epoch`."""
    upload = Upload.load(path)
    upload.check_form(briefing, path.name)
    if (upload.header.client, upload.header.epoch) != (client, epoch):
        raise AccordError(
            f"{path.name}: expected the upload of client {shown(client)} after epoch {epoch}; "
            f"found that of {upload.header.client[:100]!r} after epoch {upload.header.epoch}."
        )
    found = upload.tensors["label_counts"].tolist()
    if counts is not None and found != list(counts):
        raise AccordError(
            f"{path.name}: expected the label counts {list(counts)}, which the client's images "
            f"have, or had in an earlier round; found {found}."
        )
    check_file(upload, briefing, path)


def rounds_of(
    trial: Trial, folder: TrialFolder, clients: tuple[str, ...], min_clients: int | None = None
) -> tuple[Round, ...]:
    """All rounds of a trial, in order. A round needs `min_clients` uploads, if given."""
    budget, settings = trial.setup.budget, trial.setup.rounds
    found = []
    for number in range(1, trial.method.rounds + 1):
        first = (number - 1) * budget.epochs
        asked = trial.method.chosen(clients, trial.seed, number)
        if asked is None:
            several = trial.recipe.several_rounds
            asked = sampled(clients, settings, trial.seed, number) if several else clients
        needed = min(min_clients or settings.min_fit_clients or len(asked), len(asked))
        epochs = tuple(first + epoch for epoch in budget.checkpoints)
        found.append(Round(number, folder.round(number), asked, needed, epochs))
    return tuple(found)


def sampled(
    clients: tuple[str, ...], settings: RoundsConfig, seed: int, number: int
) -> tuple[str, ...]:
    """The clients of a round: max(⌊fraction·K⌋, min_fit_clients, 1) of all K, in their order.

    This is the number that Flower uses. The choice depends only on the seed and the round.
    """
    wanted = math.floor(settings.fraction * len(clients) + 1e-9)  # 0.29·100 is 28.999… in floats
    count = max(wanted, settings.min_fit_clients or 1)
    if count >= len(clients):
        return clients
    draws = numpy_generator(seed, "sampling", number)
    chosen = sorted(draws.choice(len(clients), count, replace=False).tolist())
    return tuple(clients[index] for index in chosen)


def remembered(rounds: tuple[Round, ...], client: str, one: Round) -> int | None:
    """The last round before `one` in which the client's upload was used.

    If the client has kept a memory, it is that of this round. Only the client knows: its memory
    may be on another machine.
    """
    return max(
        (o.number for o in rounds if o.number < one.number and client in o.answered), default=None
    )


def link_uploads(source: tuple[Round, ...], target: tuple[Round, ...]) -> None:
    """Links the uploads of a trial with the same training, so that no client trains again."""
    for other, own in zip(source, target, strict=True):
        for client in other.asked:
            if other.has_answered(client):
                for epoch in other.epochs:
                    link_or_copy(other.upload(client, epoch), own.upload(client, epoch))
                own.folder.write_seconds(client, other.folder.read_seconds(client))


def forget_memories(rounds: tuple[Round, ...], closed: Round) -> None:
    """Removes the earlier memories of clients that answered in the closed round."""
    for before in rounds[: closed.number - 1]:
        for client in closed.answered:
            before.folder.memory(client).unlink(missing_ok=True)


def check_rounds(trial: Trial, clients: int, min_clients: int | None = None) -> None:
    """Refuses settings that need more clients than the trial has."""
    if not trial.recipe.pooled and (min_clients or 0) > clients:
        raise AccordError(
            f"min-clients: expected at most {clients}, the number of clients; found {min_clients}."
        )
    if not trial.recipe.several_rounds:
        return
    settings = trial.setup.rounds
    _check_turns(trial, clients)
    asked: dict[str, Any] = {
        "min_fit_clients": settings.min_fit_clients,
        "min_available_clients": settings.min_available_clients,
    }
    for key, value in asked.items():
        if value is not None and value > clients:
            raise AccordError(
                f"'rounds.{key}': expected at most {clients}, the number of clients; found "
                f"{value}. Make it smaller, or use more clients."
            )


def _check_turns(trial: Trial, clients: int) -> None:
    """Refuses settings of a method that chooses the clients of each round itself."""
    method, settings = trial.method, trial.setup.rounds
    if trial.recipe.pooled or not method.one_by_one:
        return
    if settings.fraction < 1 or (settings.min_fit_clients or 1) > 1:
        raise AccordError(
            f"the method {trial.recipe.method_name} asks one client in each round. Remove "
            "rounds.fraction and rounds.min_fit_clients, or use another method."
        )
    method.require_clients(clients)  # 0: with files, it is not known which clients there are
