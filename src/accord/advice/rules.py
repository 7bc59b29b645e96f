"""The rules of the advice, in the order of preference.

Each rule says for which federations it holds, which recipe it advises, why, and which study in the
documentation showed it. The first rule that fits is the recommendation, and the next one that fits
is the runner-up. The tables in the documentation are made from these rules (table.py).
"""

from __future__ import annotations

from accord.advice import choices as make
from accord.advice.facts import Facts
from accord.advice.rule import Evidence, Rule
from accord.advice.sizes import LARGE, SMALL, most_features

FEWEST = 32  # features; with fewer, most of the accuracy is lost
FEWEST_LANDMARKS = 1_000
MANY = 10_000  # images, from which on more features help
FOR_GPU = 20_000  # images, from which on a long training of a large net is worth its time
TRAINABLE = 100  # images of a typical client, from which on it can train a net
ROUNDS = 4  # exchanges, from which on averaging is better than one exchange of nets


def kernel(facts: Facts) -> bool:
    """Whether there are enough public images for a kernel that stays within the limits."""
    return make.landmarks(facts) >= FEWEST_LANDMARKS


def _any(facts: Facts) -> bool:
    return not facts.one_net


def _tight(facts: Facts) -> bool:
    """Whether the limits exclude closed-form-small, but not every map of fixed features."""
    return _any(facts) and FEWEST <= most_features(facts, SMALL, "float32") < SMALL


def _can_train(facts: Facts) -> bool:
    return _any(facts) and (facts.median >= TRAINABLE or facts.private)


CLOSED_FORM, FUSION, ROUND_PAGE = "docs/closed-form.md", "docs/fusion.md", "docs/rounds.md"
PUBLIC_STUDY, FUSIONS_STUDY = "studies/closed-form-public.yaml", "studies/fusions.yaml"

RULES = (
    Rule(
        have="public images with labels, 1,000 or more",
        use="`closed-form-teacher`, ridge",
        why="The server learns features from its own labelled images, and the clients' sums add "
        "what it lacks. The result is the same for any label skew, and no client trains.",
        evidence=Evidence(
            CLOSED_FORM,
            PUBLIC_STUDY,
            "85.5 ± 0.4 %",
            "85.5 ± 0.4 % on CIFAR-10, five clients, α = 0.05; the server alone 80.7 ± 0.1 %",
        ),
        holds=lambda facts: _any(facts) and facts.labelled and kernel(facts),
        make=make.kernel("closed-form-teacher"),
    ),
    Rule(
        have="public images without labels, 1,000 or more",
        use="`closed-form-public`, ridge",
        why="A kernel with public images as landmarks is more accurate than patches alone, and "
        "needs no labels of these images. The result is the same for any label skew.",
        evidence=Evidence(
            CLOSED_FORM,
            PUBLIC_STUDY,
            "79.7 ± 0.1 %",
            "79.7 ± 0.1 % on CIFAR-10, five clients, α = 0.05",
        ),
        holds=lambda facts: _any(facts) and kernel(facts),
        make=make.kernel("closed-form-public"),
    ),
    Rule(
        have="no public images; 3,200 images or more at every client",
        use="`closed-form`, ridge",
        why="Clients send sums of fixed features, once. The result is that of all images in one "
        "place, for any label skew, and every client has more images than there are features.",
        evidence=Evidence(
            CLOSED_FORM,
            "studies/closed-form.yaml",
            "76.4 %",
            "76.4 % on CIFAR-10, five clients, α = 0.05, with 20.6 MB per upload; the best "
            "published one-shot result from scratch is 71.2 %",
        ),
        holds=lambda facts: _any(facts) and facts.smallest >= LARGE,
        make=make.sums("closed-form", LARGE),
    ),
    Rule(
        have="a GPU at each client, and 20,000 images or more",
        use="`etf-balanced`, classwise; resnet18, 100 epochs",
        why="A long training of a large net on a GPU can be better than fixed features, above all "
        "with little label skew. We had no GPU and have not measured this.",
        evidence=Evidence(
            FUSION,
            FUSIONS_STUDY,
            "47.6",
            "47.6 % on CIFAR-10 at CPU size (10,000 images, resnet10, 10 epochs)",
        ),
        holds=lambda facts: _any(facts) and facts.gpu and facts.images >= FOR_GPU,
        make=make.large_nets,
        second=True,
    ),
    Rule(
        have="10,000 images or more, but some client with fewer than 3,200",
        use="`closed-form`, ridge",
        why="Four times as many features as closed-form-small are more accurate if there are many "
        "images. The sums of clients with fewer than 3,200 images then reveal more.",
        evidence=Evidence(
            CLOSED_FORM,
            "studies/closed-form.yaml",
            "76.4 %",
            "76.4 % compared with 69.5 % of closed-form-small on CIFAR-10, five clients, α = 0.05",
        ),
        holds=lambda facts: _any(facts) and facts.images >= MANY and facts.smallest < LARGE,
        make=make.sums("closed-form", LARGE),
        second=True,
    ),
    Rule(
        have="no public images; any number of clients, images and labels per client",
        use="`closed-form-small`, ridge",
        why="Clients send sums of fixed features, once. The result is that of all images in one "
        "place, for any label skew, and no net is trained.",
        evidence=Evidence(
            ROUND_PAGE,
            "studies/rounds.yaml",
            "71.0",
            "71.0 % on CIFAR-10 and 99.7 % on digits (α = 0.1); the best trained one-shot recipe "
            "reaches 54.0 and 96.1 %, and 20 rounds of SCAFFOLD 43.8 and 97.6 %",
        ),
        holds=_any,
        make=make.sums("closed-form-small", SMALL),
    ),
    Rule(
        have="few megabytes per upload, or `--private` and 32 images or more at every client",
        use="`closed-form-small` with fewer features, ridge",
        why="As many features as the limits allow: the upload grows with their square, and no "
        "client may have fewer images than features if its sums must not show single images.",
        evidence=Evidence(
            "docs/advice.md",
            "studies/few-features.yaml",
            "57.3 ± 0.2",
            "on CIFAR-10 with 5,000 images, 400 features reach 63.0 ± 1.1, 160 features 57.3 ± 0.2 "
            "and 32 features 41.5 ± 2.6 %; 800 features reach 65.2 ± 0.5 %",
        ),
        holds=_tight,
        make=make.fewer("float32", SMALL),
    ),
    Rule(
        have="a need for trained nets: 100 images or more at a typical client, or `--private`",
        use="`etf-balanced`, classwise",
        why="The best recipe that trains nets in one exchange: a shared fixed classifier, and "
        "votes that are calibrated for each class. It also works for clients with one class.",
        evidence=Evidence(
            ROUND_PAGE,
            "studies/rounds.yaml",
            "54.0",
            "54.0 % on CIFAR-10 and 95.7 % on digits (α = 0.1); 20 rounds of FedAvg reach 37.9 "
            "and 95.3 %",
        ),
        holds=_can_train,
        make=make.nets("etf-balanced"),
    ),
    Rule(
        have="the same, to compare with the literature",
        use="`fafi`, classwise",
        why="FAFI's training with classwise votes in place of its own fusion, which was 13 points "
        "lower there.",
        evidence=Evidence(
            ROUND_PAGE,
            "studies/rounds.yaml",
            "53.1",
            "53.1 % on CIFAR-10 and 96.1 % on digits (α = 0.1); with its own fusion 40.0 and "
            "91.4 %",
        ),
        holds=_can_train,
        make=make.nets("fafi", fusion="classwise"),
    ),
    Rule(
        have="the same, with half the bytes per feature",
        use="`closed-form-small` with fewer features and `packing: float16`, ridge",
        why="Half the bytes for the same number of features, or more features for the same bytes. "
        "Rounding costs patches some accuracy.",
        evidence=Evidence(
            CLOSED_FORM,
            "studies/closed-form-choices.yaml",
            "73.3 %",
            "float16 costs patches two points (73.3 % compared with 75.4 %)",
        ),
        holds=_tight,
        make=make.fewer("float16", SMALL),
    ),
    Rule(
        have="clients with few images each",
        use="`closed-form-small` with 400 features, ridge",
        why="Half the features need a quarter of the bytes, and the sums of small clients reveal "
        "less.",
        evidence=Evidence(
            "docs/advice.md",
            "studies/few-features.yaml",
            "49.3 ± 1.1",
            "on CIFAR-10 with 1,000 images, 400 features reach 49.3 ± 1.1 and 800 features "
            "49.7 ± 0.4 %",
        ),
        holds=_any,
        make=make.fewer("float32", SMALL // 2),
    ),
    Rule(
        have="`--one-net` and 1,000 public images or more",
        use="`closed-form-public`, distilled from ridge",
        why="A student net imitates the closed form on the public images, without their labels. "
        "It is one small net, at the cost of accuracy.",
        evidence=Evidence(
            CLOSED_FORM,
            PUBLIC_STUDY,
            "68.5 %",
            "68.5 % with a net of 1.3 MB on CIFAR-10 (one seed); its teacher, whose map has 197 "
            "MB, reaches 79.7 %",
        ),
        holds=lambda facts: facts.one_net and kernel(facts),
        make=make.student,
    ),
    Rule(
        have="`--one-net` and some public images",
        use="`etf-balanced`, distilled from classwise",
        why="A student net imitates the votes of the clients' nets on the public images, without "
        "their labels.",
        evidence=Evidence(
            FUSION,
            "python -m benchmarks student",
            "45.4 %",
            "45.4 % on CIFAR-10 with 5,000 unlabelled images; its five teachers together 44.4 %",
        ),
        holds=lambda facts: facts.one_net and facts.public > 0,
        make=make.nets("etf-balanced", fusion="distilled"),
    ),
    Rule(
        have="`--one-net` and four exchanges or more",
        use="`scaffold`, average",
        why="Averaging in rounds gives one net. SCAFFOLD never needed more rounds than FedAvg, at "
        "twice the bytes.",
        evidence=Evidence(
            ROUND_PAGE,
            "studies/rounds.yaml",
            "43.8",
            "after 20 rounds 43.8 % on CIFAR-10 and 97.6 % on digits (α = 0.1); FedAvg 37.9 and "
            "95.3 %",
        ),
        holds=lambda facts: facts.one_net and facts.exchanges >= ROUNDS,
        make=make.rounds("scaffold", 2),
    ),
    Rule(
        have="the same, with half the bytes",
        use="`fedavg`, average",
        why="Averaging in rounds gives one net.",
        evidence=Evidence(
            ROUND_PAGE,
            "studies/rounds.yaml",
            "37.9",
            "after 20 rounds 37.9 % on CIFAR-10 and 95.3 % on digits (α = 0.1)",
        ),
        holds=lambda facts: facts.one_net and facts.exchanges >= ROUNDS,
        make=make.rounds("fedavg", 1),
    ),
    Rule(
        have="`--one-net`, one exchange and no public images",
        use="`fedetf`, average",
        why="The mean of nets that were trained apart. It is far less accurate than the closed "
        "form, which is one model too: leave out --one-net if you can.",
        evidence=Evidence(
            FUSION,
            FUSIONS_STUDY,
            "18.2",
            "18.2 % on CIFAR-10 (α = 0.05), the best of five recipes with the fusion average",
        ),
        holds=lambda facts: facts.one_net,
        make=make.nets("fedetf", fusion="average"),
    ),
    Rule(
        have="the same, to compare with the literature",
        use="`fedavg-once`, average",
        why="One round of FedAvg with many local epochs.",
        evidence=Evidence(
            ROUND_PAGE,
            "studies/rounds.yaml",
            "23.6",
            "23.6 % on CIFAR-10 and 67.4 % on digits (α = 0.1)",
        ),
        holds=lambda facts: facts.one_net,
        make=make.nets("fedavg-once"),
    ),
)
