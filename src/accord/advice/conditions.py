"""When the rules of the advice hold, and the pages and studies that they cite."""

from __future__ import annotations

from accord.advice import choices as make
from accord.advice.facts import Facts
from accord.advice.sizes import LANDMARKS, SMALL, most_features

FEWEST = 32  # features; with fewer, most of the accuracy is lost
FEWEST_LANDMARKS = 1_000
MANY = 10_000  # images, from which on more features help
FOR_GPU = 20_000  # images, from which on a long training of a large net is worth its time
MOST_VISITED = 20  # clients that wait for each other
TRAINABLE = 100  # images of a typical client, from which on it can train a net
ROUNDS = 4  # exchanges, from which on averaging is better than one exchange of nets


def kernel(facts: Facts) -> bool:
    """Whether there are enough public images for a kernel that stays within the limits."""
    return make.landmarks(facts) >= FEWEST_LANDMARKS


def several_parts(facts: Facts) -> bool:
    """Whether the model may be more than one ordinary net."""
    return not facts.one_net


def tight(facts: Facts) -> bool:
    """Whether the limits exclude closed-form-small, but not every map of fixed features."""
    return several_parts(facts) and FEWEST <= most_features(facts, SMALL, "float32") < SMALL


def can_train(facts: Facts) -> bool:
    """Whether clients can train nets, or must, because their sums would reveal too much."""
    return several_parts(facts) and (facts.median >= TRAINABLE or facts.private)


def visitable(facts: Facts, public: int = 0) -> bool:
    """Whether one net can visit all clients in turn, and there are so many public images."""
    return facts.public >= public and 2 <= len(facts.clients) <= MOST_VISITED


def taught(facts: Facts) -> bool:
    """Whether a net that visits all clients can learn from labelled public images as well."""
    several = several_parts(facts) and facts.labelled
    return several and visitable(facts, make.VISIT_LANDMARKS)


def labelled_first(facts: Facts) -> bool:
    """Whether it can learn from public images without labels, which a closed form labels first."""
    return several_parts(facts) and not facts.labelled and visitable(facts, LANDMARKS)


CLOSED_FORM, FUSION, ROUND_PAGE = "docs/closed-form.md", "docs/fusion.md", "docs/rounds.md"
PRIVATE_EXCHANGES_STUDY = "studies/few-exchanges-private.yaml"
PUBLIC_STUDY, FUSIONS_STUDY = "studies/closed-form-public.yaml", "studies/fusions.yaml"
EXCHANGES, EXCHANGES_STUDY = "docs/few-exchanges.md", "studies/few-exchanges.yaml"
