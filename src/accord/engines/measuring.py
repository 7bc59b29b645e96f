"""What a trial's uploads are worth: plans the merge and measure jobs and adds up their answers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from accord.changes import EVERYBODY, Changes
from accord.data.deal import Deal
from accord.engines.jobs import Job
from accord.fusion.alone import ClientMean
from accord.fusion.base import Bound, Fusion, Merge, Vote, plain, rule_of
from accord.messages import Upload, UploadHeader
from accord.metrics import Metrics, Tally
from accord.record import TrialFolder
from accord.study import Trial

BLOCK = 2_000  # images per measure job; fixed, so that sums do not depend on the workers
FORWARD = 1 / 3  # what a forward pass costs, in training steps


@dataclass
class Measuring:
    """The measuring of one trial, checkpoint by checkpoint."""

    trial: Trial
    folder: TrialFolder
    deal: Deal
    changes: Changes = EVERYBODY
    keep: str | None = None  # the fusion whose nets somebody wants to have afterwards
    tallies: dict[tuple[int, str, int], dict[str, Any]] = field(default_factory=dict)
    solutions: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(name for name in self.deal.partition.names if name not in self.changes.without)

    @property
    def epochs(self) -> tuple[int, ...]:
        return self.trial.setup.budget.checkpoints

    @cached_property
    def rules(self) -> dict[str, Fusion]:
        """Name in the results → rule."""
        return {spec["as"]: rule_of(spec) for spec in self.trial.fusions}

    def upload(self, client: str, epoch: int) -> Path:
        return self.folder.upload(client, epoch, last=epoch == self.epochs[-1])

    @property
    def fused(self) -> tuple[str, ...]:
        """Whose images the result is of: who stayed, and who came."""
        return (*(self.deal.partition.known_as[name] for name in self._stayed), *self.changes.added)

    @property
    def _stayed(self) -> list[str]:
        return [name for name in self.clients if name not in self.changes.gone]

    @property
    def _left(self) -> list[str]:
        """Who was left out or went, as people call them."""
        left = (*self.changes.without, *self.changes.gone)
        return [self.deal.partition.known_as[name] for name in left]

    def missing(self) -> dict[int, list[str]]:
        """Checkpoint → fusions that have no measure yet, or one that is to be taken again."""
        measured = {
            checkpoint["epoch"]: checkpoint["fusions"]
            for checkpoint in self.folder.measures()["checkpoints"]
        }
        found = {
            epoch: [name for name in self.rules if name not in measured.get(epoch, {})]
            for epoch in self.epochs
        }
        if self.keep is not None and self.keep not in found[self.epochs[-1]]:
            found[self.epochs[-1]].append(self.keep)  # what is kept is measured as it is now
        return {epoch: names for epoch, names in found.items() if names}

    def possible(self) -> dict[int, list[str]]:
        """What is missing and still has its uploads."""
        return {e: names for e, names in self.missing().items() if self._has_uploads(e)}

    def remarks(self) -> list[str]:
        """What can no longer be measured: uploads of earlier checkpoints are not kept."""
        return [
            f"{self.folder.id}: {', '.join(names)} not measured at epoch {epoch}, whose uploads "
            "were not kept (set keep_checkpoints: true before training)."
            for epoch, names in self.missing().items()
            if not self._has_uploads(epoch)
        ]

    def _has_uploads(self, epoch: int) -> bool:
        return all(self.upload(client, epoch).exists() for client in self.clients)

    # --- jobs ----------------------------------------------------------------------------------

    def merge_jobs(self, device: str) -> Iterator[Job]:
        """One for every rule that makes other nets of the uploads."""
        for epoch, spec, rule in self._merges(self.possible()):
            args = {
                **self._files(epoch),
                "epoch": epoch,
                "as": spec["as"],
                "fusion": plain(spec),
                "to": self._merged(spec["as"], rule, epoch),
                "device": device,
                "total": None if self.changes.without else str(self.folder.total),
                "come": [str(path) for path in self.changes.come],
                "gone": [str(self.upload(client, epoch)) for client in self.changes.gone],
            }
            yield Job("merge", args, rule.work(len(self.deal.split.public)))

    def merge_work(self) -> float:
        """Of all merges yet to do, in images passed through the net."""
        public = len(self.deal.split.public)
        return sum(rule.work(public) for _, _, rule in self._merges(self.missing()))

    def measure_work(self) -> float:
        """Of everything yet to measure, in images passed through the net."""
        images = len(self.deal.part("test")) + len(self.deal.part("validation"))
        return sum(images * self._passes(names) for names in self.missing().values())

    def _passes(self, names: list[str]) -> float:
        """What an image costs that `names` are measured on; a client who sums has no net."""
        rules = [rule for name in names if isinstance(rule := self.rules[name], Merge)]
        merged = sum(len(self.clients) if rule.personal else 1 for rule in rules)
        alone = 0 if self.trial.recipe.map else len(self.clients)
        return (alone + merged) * self.forward

    @property
    def forward(self) -> float:
        """A pass through one net, where a client's work on an image is 1 for each epoch."""
        return 1.0 if self.trial.recipe.map else FORWARD

    def _merges(self, names: dict[int, list[str]]) -> Iterator[tuple[int, dict[str, Any], Merge]]:
        """The rules among `names` that merge, and the one to keep."""
        for epoch in self.epochs:
            kept = {self.keep} if epoch == self.epochs[-1] else set()
            for spec in self.trial.fusions:
                rule = self.rules[spec["as"]]
                if spec["as"] in {*names.get(epoch, ()), *kept} and isinstance(rule, Merge):
                    yield epoch, spec, rule

    def nets(self, spec: dict[str, Any]) -> list[str]:
        """The files of the nets that a fusion asks, after the last epoch."""
        epoch, rule = self.epochs[-1], self.rules[spec["as"]]
        if isinstance(rule, Merge):
            return self._merged(spec["as"], rule, epoch)
        return [str(self.upload(client, epoch)) for client in self.clients]

    def forget_merged(self) -> None:
        shutil.rmtree(self.folder.path / "merged", ignore_errors=True)

    def _merged(self, name: str, rule: Merge, epoch: int) -> list[str]:
        nets = len(self.clients) if rule.personal else 1
        return [str(self.folder.merged(name, epoch, index)) for index in range(nets)]

    def measure_jobs(self, device: str) -> Iterator[Job]:
        """Blocks of test and validation images, each for all rules and clients at once."""
        for epoch, names in self.possible().items():
            for part in ("test", "validation"):
                images = len(self.deal.part(part))
                for start in range(0, images, BLOCK):
                    stop = min(start + BLOCK, images)
                    args = {
                        **self._files(epoch),
                        **self._chosen(epoch, names),
                        "epoch": epoch,
                        "part": part,
                        "start": start,
                        "stop": stop,
                        "device": device,
                    }
                    yield Job("measure", args, (stop - start) * self._passes(names))

    def _files(self, epoch: int) -> dict[str, Any]:
        return {
            "briefing": str(self.folder.briefing),
            "files": [str(self.upload(client, epoch)) for client in self.clients],
        }

    def _chosen(self, epoch: int, names: list[str]) -> dict[str, Any]:
        """The rules of a job: those that vote, and the merged nets by file."""
        kinds = {name: self.rules[name] for name in names}
        return {
            "votes": {
                spec["as"]: plain(spec)
                for spec in self.trial.fusions
                if isinstance(kinds.get(spec["as"]), Vote)
            },
            "merged": {
                spec["as"]: (plain(spec), self._merged(spec["as"], rule, epoch))
                for spec in self.trial.fusions
                if isinstance(rule := kinds.get(spec["as"]), Merge)
            },
        }

    # --- answers -------------------------------------------------------------------------------

    def take(self, job: Job, result: dict[str, Any]) -> None:
        if job.kind == "measure":
            self.tallies[job.args["epoch"], job.args["part"], job.args["start"]] = result
        elif job.kind == "merge" and result["events"]:
            self.solutions[job.args["epoch"], job.args["as"]] = result["events"][-1]

    def write(self) -> None:
        """Adds up the blocks and writes measures.json; earlier measures stay."""
        checkpoints = {c["epoch"]: c for c in self.folder.measures()["checkpoints"]}
        for epoch in sorted({epoch for epoch, _, _ in self.tallies}):
            fresh = self._checkpoint(epoch)
            old = checkpoints.get(epoch, {"fusions": {}})
            # What all clients did stays what it was.
            kept = old if self.changes != EVERYBODY else {}
            checkpoints[epoch] = {
                **fresh,
                **kept,
                "fusions": {**old["fusions"], **fresh["fusions"]},
            }
        self.folder.write_measures([checkpoints[epoch] for epoch in sorted(checkpoints)])
        if self.keep is None:
            self.forget_merged()

    def _checkpoint(self, epoch: int) -> dict[str, Any]:
        test, test_clients = self._metrics(epoch, "test")
        validation, validation_clients = self._metrics(epoch, "validation")
        found = {
            name: (metrics, validation[name].accuracy if validation else None)
            for name, metrics in test.items()
        }
        for name, rule in self.rules.items():
            if isinstance(rule, Bound):
                found[name] = rule.summarise(test_clients, validation_clients)
        headers = self._headers(epoch)
        costs = self._costs(epoch, headers)
        personal = self._personal(epoch, test_clients)
        return {
            "epoch": epoch,
            **costs,
            "fusions": {
                name: {
                    **found[name][0].to_json(),
                    "validation_accuracy": found[name][1],
                    "personal_accuracy": personal.get(name),
                    "exchanges": rule.exchanges,
                    "without": self._left,
                    "added": self.changes.added,
                    "solution": self.solutions.get((epoch, name)),
                    **({"clients": len(self.fused), **costs} if self.changes != EVERYBODY else {}),
                }
                for name, rule in self.rules.items()
                if name in found
            },
            "clients": [
                {
                    "client": index,
                    "train_accuracy": headers[index].train_accuracy,
                    "test_accuracy": metrics.accuracy,
                }
                for index, metrics in enumerate(test_clients)
            ],
        }

    def _headers(self, epoch: int) -> list[UploadHeader]:
        """Of the clients that are fused; the total of sums needs nobody's upload again."""
        if self.changes.come or self.changes.gone:
            return []
        return [Upload.load(self.upload(client, epoch)).header for client in self.clients]

    def _costs(self, epoch: int, headers: list[UploadHeader]) -> dict[str, float | None]:
        """Of the clients that are fused; their time is in headers that may not have been read."""
        files = [*(self.upload(name, epoch) for name in self._stayed), *self.changes.come]
        seconds = sum(event["seconds"] or 0 for h in headers for event in h.telemetry)
        return {
            "seconds": seconds if headers else None,
            "upload_bytes": sum(file.stat().st_size for file in files),
        }

    def _personal(self, epoch: int, own: list[Metrics]) -> dict[str, float]:
        """What clients reach with nets of their own, on images in their own mix of classes."""
        blocks = self._blocks(epoch, "test")
        nets = {
            name: _added([block["personal"][name] for block in blocks])
            for name, rule in self.rules.items()
            if isinstance(rule, Merge)
            and rule.personal
            and blocks
            and name in blocks[0]["personal"]
        }
        nets |= {name: own for name, rule in self.rules.items() if isinstance(rule, ClientMean)}
        names = self.deal.partition.names
        counts = self.deal.partition.label_counts[[names.index(c) for c in self.clients]]
        return {
            name: sum(m.accuracy_for(c) for m, c in zip(each, counts, strict=True)) / len(each)
            for name, each in nets.items()
        }

    def _blocks(self, epoch: int, part: str) -> list[dict[str, Any]]:
        return [self.tallies[key] for key in sorted(self.tallies) if key[:2] == (epoch, part)]

    def _metrics(self, epoch: int, part: str) -> tuple[dict[str, Metrics], list[Metrics]]:
        """Of every fused rule and of every client, the blocks of a part added up in order."""
        blocks = self._blocks(epoch, part)
        if not blocks:
            return {}, []
        clients = _added([block["clients"] for block in blocks])
        fused = {
            name: Tally.sum(Tally.from_json(block["fusions"][name]) for block in blocks).metrics()
            for name in blocks[0]["fusions"]
        }
        return fused, clients


def _added(blocks: list[list[Any]]) -> list[Metrics]:
    """The metrics of each net, from its tally in every block."""
    nets = zip(*blocks, strict=True)
    return [Tally.sum(map(Tally.from_json, tallies)).metrics() for tallies in nets]
