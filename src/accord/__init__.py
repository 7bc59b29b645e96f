"""Accord: one-shot and few-round federated learning on label-skewed data.

import accord
results = accord.run("studies/quickstart.yaml")
results.frame()
"""

from accord.answering import answer
from accord.errors import AccordError
from accord.fusing import fuse
from accord.predictor import Predictor
from accord.results import Results, load
from accord.runner import run
from accord.study import Study, load_study

__version__ = "0.1.0"
__all__ = [
    "AccordError",
    "Predictor",
    "Results",
    "Study",
    "answer",
    "fuse",
    "load",
    "load_study",
    "run",
]
