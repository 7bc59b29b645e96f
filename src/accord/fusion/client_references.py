"""The references of `local-only`: the metrics of the clients' own nets, without fusion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accord.core.metrics import Metrics
from accord.fusion.base import ReferenceRule, fusions


@fusions.register("client-mean")
class ClientMean(ReferenceRule):
    """The mean over clients of the metrics of each client's own net on the whole test set."""

    def summarise(
        self, test: Sequence[Metrics], validation: Sequence[Metrics]
    ) -> tuple[Metrics, float | None]:
        def mean(name: str) -> float:
            return float(np.mean([getattr(client, name) for client in test]))

        top5 = None if test[0].top5 is None else mean("top5")
        metrics = Metrics(
            accuracy=mean("accuracy"),
            balanced_accuracy=mean("balanced_accuracy"),
            worst_class=mean("worst_class"),
            ece=mean("ece"),
            loss=mean("loss"),
            confusion=tuple(map(tuple, np.sum([c.confusion for c in test], axis=0).tolist())),
            top5=top5,
        )
        validated = [client.accuracy for client in validation]
        return metrics, float(np.mean(validated)) if validated else None


@fusions.register("client-best")
class ClientBest(ReferenceRule):
    """The client whose own net has the highest accuracy on the test set.

    It is chosen with the test labels, so it is a reference for comparison and not a method.
    """

    def summarise(
        self, test: Sequence[Metrics], validation: Sequence[Metrics]
    ) -> tuple[Metrics, float | None]:
        best = max(range(len(test)), key=lambda k: (test[k].accuracy, -test[k].loss))
        return test[best], validation[best].accuracy if validation else None
