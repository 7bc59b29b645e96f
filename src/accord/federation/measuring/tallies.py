"""Adds up the tallies of blocks of images, and makes the entries of measures.json."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from accord.core.metrics import Metrics, Tally
from accord.core.parts import make_part
from accord.federation.measuring.at_sites import PARTS, added, held_out, site_figures
from accord.federation.measuring.blocks import choosing_part
from accord.federation.measuring.details import examples_in, left_out, neighbours_in
from accord.federation.measuring.scope import Checkpoint, Scope, after_advance
from accord.federation.membership import EVERYBODY
from accord.federation.tasks.measure import MeasureBlock
from accord.federation.tasks.merge import MergeUploads
from accord.fusion.base import Merge, ReferenceRule, fusions
from accord.fusion.client_references import ClientMean
from accord.messages import Upload, UploadHeader


@dataclass(eq=False)
class Tallies:
    """The answers of all measure and merge tasks so far."""

    scope: Scope
    blocks: dict[tuple[int, str, int], dict[str, Any]] = field(default_factory=dict)
    looks: dict[int, dict[str, Any]] = field(default_factory=dict)  # epoch → some images' details
    solutions: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)

    def take(self, task: object, result: dict[str, Any]) -> None:
        if isinstance(task, MeasureBlock):
            if task.step == 1:
                self.blocks[task.epoch, task.part, task.start] = result
            if task.details.neighbours:
                self.looks[task.epoch] = result
        elif isinstance(task, MergeUploads) and result["events"]:
            self.solutions[task.epoch, task.label] = result["events"][-1]

    def write(self) -> None:
        """Adds up the blocks and writes measures.json; earlier measurements are kept."""
        folder = self.scope.folder
        checkpoints = {c["epoch"]: c for c in folder.measures()["checkpoints"]}
        measured = {epoch for epoch, _, _ in self.blocks}
        for at in self.scope.checkpoints():
            if at.epoch not in measured:
                continue
            fresh = self.checkpoint(at)
            old = checkpoints.get(at.epoch, {"fusions": {}})
            # Further fusions do not change the trial's costs and its clients' accuracies.
            fusions = {**old["fusions"], **fresh["fusions"]}
            checkpoints[at.epoch] = {**fresh, **old, "fusions": fusions}
        folder.write_measures([checkpoints[epoch] for epoch in sorted(checkpoints)])
        self.blocks.clear()
        self.looks.clear()

    def checkpoint(self, at: Checkpoint) -> dict[str, Any]:
        """One entry of measures.json."""
        scope = self.scope
        test, test_clients = self._metrics(at, "test")
        validation, validation_clients = self._metrics(at, "validation")
        found = {
            name: (metrics, validation[name].accuracy if validation else None)
            for name, metrics in test.items()
        }
        for name, rule in scope.rules.items():
            if isinstance(rule, ReferenceRule):
                found[name] = rule.summarise(test_clients, validation_clients)
        headers = self._headers(at)
        costs = self._costs(at, headers)
        personal = self._personal(at, test_clients)
        at_sites = self._at_sites(at)
        some = {"clients": len(scope.fused()), **costs} if scope.membership != EVERYBODY else {}
        part, look = choosing_part(scope.allocation), self.looks.get(at.epoch)
        everybody = validation if part == "validation" else test
        return {
            "round": at.round.number,
            **({"rounds_before": len(scope.before)} if scope.before else {}),
            "epoch": at.epoch,
            "took_part": list(at.round.answered),
            **costs,
            "download_bytes": self._download_bytes(at),
            "server_seconds": self._server_seconds(at),
            **_training(headers, at.epoch),
            "fusions": {
                name: {
                    **found[name][0].to_json(),
                    "validation_accuracy": found[name][1],
                    "accuracy_before": self._before(name, at, found),
                    "fusion_applied": scope.trial.method.fusion_applied(at.round.number),
                    "personal_accuracy": personal.get(name),
                    **at_sites[name],
                    "exchanges": rule.exchanges - 1 + self._exchanges(at),
                    "without": scope.left(),
                    "added": scope.membership.added,
                    "solution": self.solutions.get((at.epoch, name)),
                    **examples_in(look, name),
                    **left_out(
                        self._blocks(at, part), name, scope.clients(at.round), part, everybody
                    ),
                    **some,
                }
                for name, rule in scope.rules.items()
                if name in found
            },
            "clients": [
                {
                    "client": name,
                    "train_accuracy": header.train_accuracy,
                    "test_accuracy": metrics.accuracy,
                    **neighbours_in(look, index),
                }
                for index, (name, header, metrics) in enumerate(
                    self._alone(at, headers, test_clients)
                )
            ],
        }

    def _exchanges(self, at: Checkpoint) -> int:
        """How often the client that has taken part most often has been asked so far."""
        so_far = [*self.scope.before, *self.scope.rounds[: at.round.number]]
        return max(Counter(client for one in so_far for client in one.asked).values())

    def _before(
        self, name: str, at: Checkpoint, found: dict[str, tuple[Metrics, float | None]]
    ) -> float | None:
        """The accuracy of the merged net before the method enriched it, for the server's net."""
        start, rules = self.scope.trial.method.starts_from, self.scope.rules
        if start is None or not after_advance(rules[name]):
            return None
        merge = make_part(fusions, start, "merge")
        merged = [label for label in found if rules[label] == merge]
        if merged:
            return found[merged[0]][0].accuracy
        # The average is not measured again when the server's net is.
        known = self.scope.folder.measures()["checkpoints"]
        old = [c["fusions"].values() for c in known if c["epoch"] == at.epoch]
        told = [found["accuracy_before"] for fusions in old for found in fusions]
        return next((accuracy for accuracy in told if accuracy is not None), None)

    def _alone(
        self, at: Checkpoint, headers: list[UploadHeader], metrics: list[Metrics]
    ) -> list[tuple[str, UploadHeader, Metrics]]:
        """The metrics of each client's own net; an empty list if clients upload sums."""
        if not metrics:
            return []
        return list(zip(self.scope.clients(at.round), headers, metrics, strict=True))

    def _headers(self, at: Checkpoint) -> list[UploadHeader]:
        """The headers of the fused uploads; none if the stored total replaces the uploads."""
        if self.scope.membership.joined or self.scope.membership.removed:
            return []
        clients = self.scope.clients(at.round)
        return [Upload.load(at.upload(client)).header for client in clients]

    def _costs(self, at: Checkpoint, headers: list[UploadHeader]) -> dict[str, float | None]:
        """The costs of all rounds so far; the time is None if no headers were read."""
        scope = self.scope
        files = [at.upload(name) for name in scope.stayed(at.round)]
        files += scope.membership.joined
        before = [one.report for one in scope.before]
        before += [one.report for one in scope.rounds if one.number < at.round.number]
        seconds = sum(
            spent
            for name in scope.clients(at.round)
            for epoch, spent in at.round.folder.read_seconds(name).items()
            if epoch <= at.epoch
        )
        return {
            "seconds": sum(r.seconds for r in before) + seconds if headers else None,
            "upload_bytes": sum(r.upload_bytes for r in before)
            + sum(file.stat().st_size for file in files),
        }

    def _download_bytes(self, at: Checkpoint) -> int:
        """The size of all briefings so far, counted once for each client that was asked."""
        until = [one for one in self.scope.rounds if one.number <= at.round.number]
        return sum(one.report.download_bytes for one in (*self.scope.before, *until))

    def _server_seconds(self, at: Checkpoint) -> float | None:
        """The time in which the server made the states after the rounds so far."""
        if not self.scope.trial.recipe.several_rounds and not self.scope.before:
            return None
        until = [one for one in self.scope.rounds if one.number <= at.round.number]
        return sum(one.report.server_seconds or 0.0 for one in (*self.scope.before, *until))

    def _personal(self, at: Checkpoint, own: list[Metrics]) -> dict[str, float]:
        """The mean accuracy of clients' own nets on test images with their own class shares."""
        rules = self.scope.rules
        blocks = self._blocks(at, "test")
        nets = {
            name: _added([block["personal"][name] for block in blocks])
            for name, rule in rules.items()
            if isinstance(rule, Merge)
            and rule.personal
            and blocks
            and name in blocks[0]["personal"]
        }
        nets |= {name: own for name, rule in rules.items() if isinstance(rule, ClientMean)}
        partition = self.scope.allocation.partition
        rows = [partition.names.index(c) for c in self.scope.clients(at.round)]
        counts = partition.label_counts[rows].tolist()
        if nets and not any(map(any, counts)):  # sites, whose uploads tell their counts
            uploads = (Upload.load(at.upload(c)) for c in self.scope.clients(at.round))
            counts = [upload.tensors["label_counts"].tolist() for upload in uploads]
        return {
            name: sum(m.accuracy_for(c) for m, c in zip(each, counts, strict=True)) / len(each)
            for name, each in nets.items()
        }

    def _at_sites(self, at: Checkpoint) -> dict[str, dict[str, Any]]:
        """Fusion → its figures of each site.

        Those of `client-mean` are the figures of each site's own net at home. `client-best` is one
        client's net, and says nothing about the other sites.
        """
        held, took_part = held_out(self.scope.allocation), self.scope.took_part(at.round)
        answers = [block["sites"] for part in PARTS for block in self._blocks(at, part)]
        own = added([answer["own"] for answer in answers])
        found = {}
        for name, rule in self.scope.rules.items():
            fused = added([answer["fusions"].get(name, {}) for answer in answers])
            if isinstance(rule, ReferenceRule):
                fused = own if isinstance(rule, ClientMean) else {}
            found[name] = site_figures(held if fused else {}, fused, own, took_part)
        return found

    def _blocks(self, at: Checkpoint, part: str) -> list[dict[str, Any]]:
        return [self.blocks[key] for key in sorted(self.blocks) if key[:2] == (at.epoch, part)]

    def _metrics(self, at: Checkpoint, part: str) -> tuple[dict[str, Metrics], list[Metrics]]:
        """The metrics of every fusion and of every client, summed over the blocks of a part."""
        blocks = self._blocks(at, part)
        if not blocks:
            return {}, []
        clients = _added([block["clients"] for block in blocks])
        fused = {
            name: Tally.sum(Tally.from_json(block["fusions"][name]) for block in blocks).metrics()
            for name in blocks[0]["fusions"]
        }
        return fused, clients


def _training(headers: list[UploadHeader], epoch: int) -> dict[str, float | None]:
    """Loss of the epoch and accuracy of each client's net on its own images; Σ_k (n_k/n) of both.

    A value is None if a client did not tell it.
    """
    losses = [
        next((event.get("loss") for event in h.telemetry if event["epoch"] == epoch), None)
        for h in headers
    ]
    samples = [h.samples for h in headers]
    return {
        "train_loss": _mean(losses, samples),
        "train_accuracy": _mean([h.train_accuracy for h in headers], samples),
    }


def _mean(values: list[float | None], samples: list[int]) -> float | None:
    known = [(value, n) for value, n in zip(values, samples, strict=True) if value is not None]
    if not known or len(known) < len(values):
        return None
    return sum(value * n for value, n in known) / sum(n for _, n in known)


def _added(blocks: list[list[Any]]) -> list[Metrics]:
    """The metrics of each net, from its tally in every block."""
    nets = zip(*blocks, strict=True)
    return [Tally.sum(map(Tally.from_json, tallies)).metrics() for tallies in nets]
