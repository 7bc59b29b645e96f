"""What `accord teacher` prints at its end."""

from __future__ import annotations

from pathlib import Path

from accord.report.results import Results
from accord.report.terminal import say, show_results


def show_taught(results: Results, model: Path) -> None:
    """Prints the accuracy, the number of images and the model, or why there is no model."""
    if results.failures:
        show_results(results)
        return
    last = results.rows[-1]
    (counts,) = results.record.trial(last["trial"]).info()["label_counts"]
    say(f"test accuracy: {100 * last['accuracy']:.1f} %")
    say(f"learnt from: {sum(counts):,} images")
    say(f"record: {results.path}")
    say(f"model: {model}")
