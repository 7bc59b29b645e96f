"""Does the closed form gain under a domain shift if each site's own mean is removed?

Plain: s = W(φ − μ) + ȳ with the mean μ of all clients. Centred: the sums of each client are taken
about its own mean μ_k, and at prediction a site subtracts its own mean. The uploads of the closed
form hold all that this needs. A newcomer, who sees the test images, has sent no sums: it subtracts
the mean of all clients, or that of its own images, for which it needs no labels. The benchmark
needs CIFAR-10 in a folder where `accord data` finds it (ACCORD_DATA).
"""

from __future__ import annotations

import statistics
from functools import reduce
from operator import add
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

import accord
from accord.client.summing import Summing
from accord.closed_form.posterior import log_probabilities
from accord.closed_form.ridge import solve
from accord.closed_form.sums import Sums
from accord.data.allocation import Allocation, PartName, open_allocation
from accord.messages import Briefing, Upload
from accord.record.folders import TrialFolder
from accord.record.record import Record
from benchmarks.figure import Figure
from benchmarks.workspace import LACKING, has_cifar10

STUDY = Path(__file__).parents[1] / "studies" / "domain-shift.yaml"
CHANGES = ("recipes=[closed-form-small]", "fusions=[]")
Accuracies = dict[str, float]


def measure() -> list[Figure]:
    """Runs the closed form of studies/domain-shift.yaml, which takes some minutes on two cores."""
    if not has_cifar10():
        return [Figure("closed form, means of sites removed", LACKING)]
    found: dict[str, list[Accuracies]] = {}
    with TemporaryDirectory(prefix="accord-benchmark-") as folder:
        run = Path(folder) / "run"
        accord.run(STUDY, overrides=CHANGES, out=run)
        record = Record(run)
        for trial in record.trials():
            setup = trial.info()["config"]
            setting = f"α = {setup['partition']['alpha']:g}, scale {setup['shift']['scale']:g}"
            found.setdefault(setting, []).append(_measured(trial, _allocation(record, trial)))
    return [Figure(f"closed form, {setting}", _said(seeds)) for setting, seeds in found.items()]


def _said(seeds: list[Accuracies]) -> str:
    """Each accuracy as the mean over seeds."""
    means = {key: statistics.fmean(seed[key] for seed in seeds) for key in seeds[0]}
    return ", ".join(f"{key} {value:.1%}" for key, value in means.items())


def _allocation(record: Record, trial: TrialFolder) -> Allocation:
    info = trial.info()
    opened = (open_allocation(path) for path in (record.path / "allocations").glob("*.json"))
    wanted = {key: info["config"][key] for key in ("partition", "shift")}
    return next(
        one
        for one in opened
        if one.seed == info["seed"]
        and one.scheme.model_dump(mode="json") == wanted["partition"]
        and one.shift.model_dump(mode="json") == wanted["shift"]
    )


def _measured(trial: TrialFolder, allocation: Allocation) -> Accuracies:
    uploads = [Upload.load(path) for path in sorted(trial.path.glob("uploads/*.safetensors"))]
    clients = [Sums.of(upload.tensors) for upload in uploads]
    briefing = Briefing.load(trial.round(1).briefing)
    own, test = _features(allocation, "own", briefing), _features(allocation, "test", briefing)
    means = torch.stack([client.mean for client in clients])
    everybody = reduce(add, clients)
    sites = torch.from_numpy(allocation.owners("own"))
    plain, centred = _Rule(everybody), _Rule(reduce(add, map(_about_own_mean, clients)))
    nothing = torch.zeros_like(everybody.mean)
    return {
        **_at_sites("plain", plain.scores(own, nothing), allocation, sites),
        **_at_sites("centred", centred.scores(own, means[sites]), allocation, sites),
        "newcomer plain": _accuracy(plain.scores(test, nothing), allocation),
        "with the mean of all": _accuracy(centred.scores(test, everybody.mean), allocation),
        "with its own mean": _accuracy(centred.scores(test, test.mean(dim=0)), allocation),
    }


def _about_own_mean(client: Sums) -> Sums:
    """The sums of φ − μ_k; the scatter is about the mean already."""
    return Sums(client.counts, client.sums - client.counts[:, None] * client.mean, client.scatter)


class _Rule:
    """The ridge regression of some sums."""

    def __init__(self, total: Sums) -> None:
        self.weights, self.bias = log_probabilities(solve(total), total.counts, "uniform")

    def scores(self, features: Tensor, mean: Tensor) -> Tensor:
        return (features - mean) @ self.weights.T + self.bias


def _features(allocation: Allocation, part: PartName, briefing: Briefing) -> Tensor:
    encoder = Summing(allocation.part(part), briefing, part)
    return encoder.features(torch.arange(len(encoder.data))).double()


def _at_sites(name: str, scores: Tensor, allocation: Allocation, sites: Tensor) -> Accuracies:
    """The mean over sites and the worst site."""
    right = (scores.argmax(dim=1) == torch.from_numpy(allocation.part("own").labels)).double()
    each = [float(right[sites == site].mean()) for site in sorted(set(sites.tolist()))]
    return {f"{name} at sites": statistics.fmean(each), f"{name} at the worst": min(each)}


def _accuracy(scores: Tensor, allocation: Allocation) -> float:
    labels = torch.from_numpy(allocation.part("test").labels)
    return float((scores.argmax(dim=1) == labels).double().mean())
