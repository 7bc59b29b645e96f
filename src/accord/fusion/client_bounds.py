"""The bounds of `local-only`: what clients reach when nobody fuses anything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accord.core.metrics import Metrics
from accord.fusion.base import Bound, fusions


@fusions.register("client-mean")
class ClientMean(Bound):
    """The mean over clients of what each one's own net reaches on the whole test set."""

    def summarise(
        self, test: Sequence[Metrics], validation: Sequence[Metrics]
    ) -> tuple[Metrics, float | None]:
        def mean(name: str) -> float:
            return float(np.mean([getattr(client, name) for client in test]))

        metrics = Metrics(
            accuracy=mean("accuracy"),
            balanced_accuracy=mean("balanced_accuracy"),
            worst_class=mean("worst_class"),
            ece=mean("ece"),
            loss=mean("loss"),
            confusion=tuple(map(tuple, np.sum([c.confusion for c in test], axis=0).tolist())),
        )
        validated = [client.accuracy for client in validation]
        return metrics, float(np.mean(validated)) if validated else None


@fusions.register("client-best")
class ClientBest(Bound):
    """The client whose own net reaches most on the test set.

    It is found with the test labels, so it is a bound to compare with, not a method to use.
    """

    def summarise(
        self, test: Sequence[Metrics], validation: Sequence[Metrics]
    ) -> tuple[Metrics, float | None]:
        best = max(range(len(test)), key=lambda k: (test[k].accuracy, -test[k].loss))
        return test[best], validation[best].accuracy if validation else None
