"""The rules of the advice, in the order of preference.

Each rule says for which federations it holds, which recipe it advises, why, and which study in the
documentation showed it. The first rule that fits is the recommendation, and the next one that fits
is the runner-up. The tables in the documentation are made from these rules (table.py).
"""

from __future__ import annotations

from accord.advice import choices as make
from accord.advice.conditions import (
    CLOSED_FORM,
    EXCHANGES,
    EXCHANGES_STUDY,
    FEWEST_LANDMARKS,
    FOR_GPU,
    FUSION,
    FUSIONS_STUDY,
    MANY,
    PRIVATE_EXCHANGES_STUDY,
    PUBLIC_STUDY,
    ROUND_PAGE,
    can_train,
    kernel,
    labelled_first,
    several_parts,
    taught,
    tight,
    visitable,
)
from accord.advice.one_net import ONE_NET
from accord.advice.rule import Evidence, Rule
from accord.advice.sizes import LARGE, SMALL

RULES = (
    Rule(
        have="public images with labels, 1,800 or more; at most 20 clients; five exchanges or more",
        use="`few-rounds-public`, ridge-calibrated; white7-wide",
        why="One net learns from every client in turn, together with the public images, so that it "
        "forgets no class. At the end, clients send sums of its features, once.",
        evidence=Evidence(
            EXCHANGES,
            EXCHANGES_STUDY,
            "90.4 ± 0.1 %",
            "90.4 ± 0.1 % on CIFAR-10, five clients, α = 0.05, three seeds; closed-form-teacher "
            "reaches 88.8 and the server alone 85.5 %",
        ),
        holds=taught,
        make=make.visits,
    ),
    Rule(
        have="public images with labels, 1,000 or more; at most 20 clients; four exchanges",
        use="`public-turns`, server; white7-wide",
        why="One net learns from every client in turn, together with the public images, so that it "
        "forgets no class.",
        evidence=Evidence(
            EXCHANGES,
            EXCHANGES_STUDY,
            "88.8 ± 0.7 %",
            "88.8 ± 0.7 % on CIFAR-10, five clients, α = 0.05, three seeds; closed-form-teacher "
            "reaches 88.8 % in one exchange, but every client receives 437 MB instead of 80",
        ),
        # Not as the runner-up of the one above, which ends with sums of the same net.
        holds=lambda facts: (
            several_parts(facts)
            and facts.labelled
            and visitable(facts, FEWEST_LANDMARKS)
            and not (taught(facts) and facts.exchanges > make.VISITS)
        ),
        make=make.visited_net,
    ),
    Rule(
        have="public images without labels, 4,700 or more; at most 20 clients; five exchanges or "
        "more",
        use="`few-rounds-unlabelled`, ridge-calibrated; white7-wide",
        why="Sums of fixed features label the public images. One net then learns from every client "
        "in turn and from these images, and at the end clients send sums of its features.",
        evidence=Evidence(
            EXCHANGES,
            EXCHANGES_STUDY,
            "87.3 ± 1.0 %",
            "87.3 ± 1.0 % on CIFAR-10, five clients, α = 0.05, three seeds; closed-form-public "
            "reaches 79.7 ± 0.1 %",
        ),
        holds=labelled_first,
        make=make.unlabelled_visits,
    ),
    Rule(
        have="10,000 images or more; at most 20 clients; five exchanges or more",
        use="`few-rounds`, ridge-calibrated; white7",
        why="One net learns from every client in turn. Its head forgets classes that a client does "
        "not hold, but its features do not: clients send sums of these and of patches, and the "
        "server solves a new head for all images.",
        evidence=Evidence(
            EXCHANGES,
            PRIVATE_EXCHANGES_STUDY,
            "85.9 ± 1.1 %",
            "85.9 ± 1.1 % on CIFAR-10, five clients, α = 0.05, three seeds; closed-form reaches "
            "76.4 % in one exchange",
        ),
        # Not as the runner-up of the two above: both are in one study, which has one net.
        holds=lambda facts: (
            several_parts(facts)
            and facts.images >= MANY
            and visitable(facts)
            and not (taught(facts) or labelled_first(facts))
        ),
        make=make.turns,
    ),
    Rule(
        have="public images with labels, 1,000 or more",
        use="`closed-form-teacher`, ridge; white7-wide",
        why="The server learns features from its own labelled images, and the clients' sums add "
        "what it lacks. The result is the same for any label skew, and no client trains.",
        evidence=Evidence(
            EXCHANGES,
            EXCHANGES_STUDY,
            "88.8 %",
            "88.8 % on CIFAR-10, five clients, one seed; the server alone 85.5 %",
        ),
        holds=lambda facts: several_parts(facts) and facts.labelled and kernel(facts),
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
        holds=lambda facts: several_parts(facts) and kernel(facts),
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
        holds=lambda facts: several_parts(facts) and facts.smallest >= LARGE,
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
        holds=lambda facts: several_parts(facts) and facts.gpu and facts.images >= FOR_GPU,
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
        holds=lambda facts: (
            several_parts(facts) and facts.images >= MANY and facts.smallest < LARGE
        ),
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
        holds=several_parts,
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
        holds=tight,
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
        holds=can_train,
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
        holds=can_train,
        make=make.nets("fafi", fusion="classwise"),
    ),
    Rule(
        have="the same, with half the bytes per feature",
        use="`closed-form-small` with fewer features and `packing: factor`, ridge",
        why="Half the bytes for the same number of features, or more features for the same bytes. "
        "The uploads are no sums any more: secure aggregation cannot add them.",
        evidence=Evidence(
            CLOSED_FORM,
            "studies/closed-form-choices.yaml",
            "73.3 %",
            "75.4 % with all bits and with the half of them (float16 correlations have 73.3 %)",
        ),
        holds=tight,
        make=make.fewer("factor", SMALL),
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
        holds=several_parts,
        make=make.fewer("float32", SMALL // 2),
    ),
    *ONE_NET,
)
