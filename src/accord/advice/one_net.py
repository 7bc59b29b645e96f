"""The rules of the advice for a model that must be one ordinary net, in the order of preference."""

from __future__ import annotations

from accord.advice import choices as make
from accord.advice.conditions import (
    CLOSED_FORM,
    EXCHANGES,
    EXCHANGES_STUDY,
    FEWEST_LANDMARKS,
    FUSION,
    FUSIONS_STUDY,
    PUBLIC_STUDY,
    ROUND_PAGE,
    ROUNDS,
    kernel,
    visitable,
)
from accord.advice.rule import Evidence, Rule

ONE_NET = (
    Rule(
        have="`--one-net`, labelled public images (1,000 or more) and four exchanges; at most 20 "
        "clients",
        use="`public-turns`, server; white7-wide",
        why="One net learns from every client in turn, together with the public images, so that it "
        "forgets no class.",
        evidence=Evidence(
            EXCHANGES,
            EXCHANGES_STUDY,
            "88.8 ± 0.7 %",
            "88.8 ± 0.7 % on CIFAR-10, five clients, α = 0.05, three seeds",
        ),
        holds=lambda facts: facts.one_net and facts.labelled and visitable(facts, FEWEST_LANDMARKS),
        make=make.visited_net,
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
