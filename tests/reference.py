"""The oracle: one dialog, one policy, in plain Python.

Slow, literal and free of the package, so that it can disagree with it. A policy is one function:
it is shown a turn (`Seen`) and the entries in the cache, and answers what every entry is worth
now (`Verdict`). What all policies share, keeping the best within the budget and attending to what
was kept, is written once in `run`. A new policy is a function, a line in `POLICIES` and a line in
`DEFAULTS`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

Vector = list[float]

EPSILON = 1e-8


@dataclass
class Entry:
    """One cached token: its number in the dialog, counted from 0, and its scores by channel."""

    token: int
    scores: dict[str, float] = field(default_factory=dict)


@dataclass
class Turn:
    """What happened in one turn.

    Attributes
    ----------
    kept : list of int
        Tokens in the cache after eviction, ascending.
    evicted : dict of int to str
        Token to the rule that evicted it, ``"budget"`` or ``"threshold"``.
    scores, terms, channels : dict
        For every token that stood for the budget decision, that is after the threshold and after
        insertion: its score, the named terms that add up to it, and its channels. After a turn
        without tokens: those of the kept tokens, as they stood.
    protected : set of int
        Tokens that the budget may not evict, whatever their score.
    before, after : dict of int to float
        Attention over the kept tokens without and with the policy's modulation, each summing to 1.
    output : list of float
        Context output, the values weighted by `after`.
    ownership_loss, learning_rate : float or None
        What equations 6 and 7 left; None for every policy but FD-KVC.
    margin : float
        The smallest difference of scores that decided anything: lowest kept score that was not
        protected against highest score evicted by the budget, and each old entry against the
        threshold. 0 for a tie, infinity where nothing was decided by a score.
    """

    kept: list[int]
    evicted: dict[int, str]
    scores: dict[int, float]
    terms: dict[int, dict[str, float]]
    protected: set[int]
    channels: dict[int, dict[str, float]]
    before: dict[int, float]
    after: dict[int, float]
    output: Vector
    ownership_loss: float | None
    learning_rate: float | None
    margin: float


@dataclass
class Seen:
    """What a policy may look at in a turn; `dialog` and the vectors are of the whole dialog."""

    new: list[int]
    dialog: list[int]
    mean_query: Vector
    mean_embedding: Vector
    embeddings: list[Vector]
    queries: list[Vector]
    keys: list[Vector]
    values: list[Vector]
    budget: int
    parameters: dict[str, float]


@dataclass
class Verdict:
    """What a policy answers; `entries` are all that stand for the budget, new ones included."""

    entries: list[Entry]
    terms: dict[int, dict[str, float]]
    protected: set[int] = field(default_factory=set)
    below_threshold: list[int] = field(default_factory=list)
    threshold_margin: float = math.inf


State = dict[str, float]
Policy = Callable[[Seen, list[Entry], State], Verdict]


# Arithmetic


def dot(a: Vector, b: Vector) -> float:
    """Inner product."""
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def mean(vectors: list[Vector]) -> Vector:
    """Mean of the vectors, coordinate by coordinate."""
    return [math.fsum(column) / len(vectors) for column in zip(*vectors, strict=True)]


def cosine(a: Vector, b: Vector) -> float:
    """Cosine of the angle; 0 where a vector has no length."""
    lengths = math.sqrt(dot(a, a)) * math.sqrt(dot(b, b))
    return dot(a, b) / lengths if lengths > 0 else 0.0


def share(amount: float, maximum: float) -> float:
    """Amount as a share of the maximum; 0 where the maximum is 0."""
    return amount / maximum if maximum > 0 else 0.0


def attention(query: Vector, keys: list[Vector]) -> list[float]:
    """Softmax of q·k / sqrt(d), d the head dimension (equation 1)."""
    logits = [dot(query, key) / math.sqrt(len(query)) for key in keys]
    largest = max(logits, default=0.0)
    weights = [math.exp(logit - largest) for logit in logits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


# Policies


def fifo(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Keep the newest."""
    entries = cache + [Entry(token) for token in seen.new]
    terms = {entry.token: {"position": float(entry.token)} for entry in entries}
    return Verdict(entries, terms)


def sink(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Keep the first tokens of the dialog, then the newest."""
    entries = cache + [Entry(token) for token in seen.new]
    terms = {entry.token: {"position": float(entry.token)} for entry in entries}
    sinks = min(int(seen.parameters["sinks"]), seen.budget)
    protected = {entry.token for entry in entries if entry.token in seen.dialog[:sinks]}
    return Verdict(entries, terms, protected)


def h2o(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Keep the newest half of the budget, then the largest sums of attention received."""
    entries = cache + [Entry(token, {"cumulative": 0.0}) for token in seen.new]
    weights = attention(seen.mean_query, [seen.keys[entry.token] for entry in entries])
    for entry, weight in zip(entries, weights, strict=True):
        entry.scores["cumulative"] += weight
    terms = {entry.token: {"cumulative": entry.scores["cumulative"]} for entry in entries}
    newest_first = sorted((entry.token for entry in entries), reverse=True)
    return Verdict(entries, terms, protected=set(newest_first[: seen.budget // 2]))


def fd_kvc(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Algorithm 1 up to the budget; `state` carries the learning rate and the ownership loss."""
    gamma, tau = seen.parameters["gamma"], seen.parameters["tau"]
    alpha_0, mu = seen.parameters["alpha_0"], seen.parameters["mu"]
    w_c = seen.parameters["w_c"]
    old = cache
    below_threshold: list[int] = []
    threshold_margin = math.inf

    if old:
        # 1. Cumulative attention (equation 1)
        weights = attention(seen.mean_query, [seen.keys[entry.token] for entry in old])
        for entry, weight in zip(old, weights, strict=True):
            entry.scores["cumulative"] += weight

        # 2. Recency decay (equation 2)
        for entry in old:
            entry.scores["recency"] *= gamma

        # 3. Relevance reinforcement (equations 3 and 4), at the rate that the last turn left
        cosines = [cosine(seen.embeddings[entry.token], seen.mean_embedding) for entry in old]
        lowest, highest = min(cosines), max(cosines)
        for entry, similarity in zip(old, cosines, strict=True):
            relevance = (similarity - lowest) / (highest - lowest + EPSILON)
            entry.scores["recency"] += state["learning_rate"] * relevance

        # 4. Adaptive learning rate (equations 5, 6 and 7)
        hybrid = {token: sum(terms.values()) for token, terms in hybrid_terms(old, w_c).items()}
        highest_hybrid = max(hybrid.values())
        shares = [share(h, highest_hybrid) for h in hybrid.values()]
        state["ownership_loss"] = math.fsum(h * (1 - h) for h in shares) / len(shares)
        state["learning_rate"] = alpha_0 / (1 + mu * state["ownership_loss"])

        # 5. Soft eviction (equation 8)
        threshold = tau * highest_hybrid
        below_threshold = [token for token, h in hybrid.items() if h < threshold]
        threshold_margin = min(abs(h - threshold) for h in hybrid.values())

    entries = [entry for entry in old if entry.token not in below_threshold]
    for token in seen.new:
        similarity = cosine(seen.embeddings[token], seen.mean_embedding)
        entries.append(Entry(token, {"cumulative": 1.0, "recency": max(similarity, 0.0)}))
    terms = hybrid_terms(entries, w_c)
    return Verdict(entries, terms, set(), below_threshold, threshold_margin)


def hybrid_terms(entries: list[Entry], w_c: float) -> dict[int, dict[str, float]]:
    """Give the two terms of equation 5, by token: w_c·ĉ and w_ρ·ρ."""
    highest = max(entry.scores["cumulative"] for entry in entries)
    return {
        entry.token: {
            "cumulative": w_c * share(entry.scores["cumulative"], highest),
            "recency": (1 - w_c) * entry.scores["recency"],
        }
        for entry in entries
    }


def fd_kvc_modulation(kept: list[Entry], parameters: dict[str, float]) -> list[float]:
    """Factor on each kept entry's attention before it is normalised again (equation 9)."""
    highest = max(entry.scores["recency"] for entry in kept)
    return [
        (0.5 + 0.5 * share(entry.scores["recency"], highest)) ** parameters["beta"]
        for entry in kept
    ]


POLICIES: dict[str, Policy] = {"fifo": fifo, "sink": sink, "h2o": h2o, "fd-kvc": fd_kvc}

DEFAULTS: dict[str, dict[str, float]] = {
    "fifo": {},
    "sink": {"sinks": 4},
    "h2o": {},
    "fd-kvc": {
        "gamma": 0.88,
        "alpha_0": 0.3,
        "mu": 0.4,
        "tau": 0.02,
        "beta": 0.25,
        "w_c": 0.45,
    },
}

MODULATIONS: dict[str, Callable[[list[Entry], dict[str, float]], list[float]]] = {
    "fd-kvc": fd_kvc_modulation
}


# The dialog


def run(
    policy: str,
    parameters: dict[str, float],
    budget: int,
    turns: list[list[int]],
    embeddings: list[Vector],
    queries: list[Vector],
    keys: list[Vector],
    values: list[Vector],
) -> list[Turn]:
    """Pass one dialog through one policy.

    Parameters
    ----------
    policy : str
        A key of `POLICIES`.
    parameters : dict of str to float
        The policy's hyperparameters where they differ from `DEFAULTS`.
    budget : int
        Entries that the cache may hold at the end of a turn, at least 1.
    turns : list of list of int
        The tokens of each turn, ascending over the dialog; a turn may be empty.
    embeddings, queries, keys, values : list of list of float
        One vector for each token.

    Returns
    -------
    list of Turn
        One for each turn.

    Raises
    ------
    ValueError
        For an unknown policy or parameter, a budget below 1, or tokens out of order.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy is {policy!r}; allowed are {sorted(POLICIES)}")
    unknown = sorted(set(parameters) - set(DEFAULTS[policy]))
    if unknown:
        raise ValueError(f"{policy} has no {unknown}; allowed are {sorted(DEFAULTS[policy])}")
    if budget < 1:
        raise ValueError(f"budget is {budget}; it must be at least 1")
    tokens = [token for new in turns for token in new]
    if tokens != sorted(set(tokens)):
        raise ValueError(f"tokens are {tokens}; they must ascend over the dialog")

    settings = {**DEFAULTS[policy], **parameters}
    state: State = {}
    if policy == "fd-kvc":
        state = {"ownership_loss": 0.0, "learning_rate": settings["alpha_0"]}

    cache: list[Entry] = []
    record: list[Turn] = []
    for new in turns:
        if not new:
            last = record[-1] if record else untouched(state, len(values[0]) if values else 0)
            record.append(unchanged(last))
            continue
        seen = Seen(
            new=new,
            dialog=tokens,
            mean_query=mean([queries[token] for token in new]),
            mean_embedding=mean([embeddings[token] for token in new]),
            embeddings=embeddings,
            queries=queries,
            keys=keys,
            values=values,
            budget=budget,
            parameters=settings,
        )
        verdict = POLICIES[policy](seen, cache, state)
        scores = {token: sum(terms.values()) for token, terms in verdict.terms.items()}

        kept, over = best(scores, verdict.protected, budget)
        cache = [entry for entry in verdict.entries if entry.token in kept]
        evicted = dict.fromkeys(verdict.below_threshold, "threshold")
        evicted |= dict.fromkeys(over, "budget")
        contested = [scores[token] for token in kept if token not in verdict.protected]
        margin = verdict.threshold_margin
        if over and contested:
            margin = min(margin, min(contested) - max(scores[token] for token in over))

        before = attention(seen.mean_query, [keys[token] for token in kept])
        after = before
        if policy in MODULATIONS:
            factors = MODULATIONS[policy](cache, settings)
            products = [weight * factor for weight, factor in zip(before, factors, strict=True)]
            total = math.fsum(products)
            after = [product / total for product in products]
        output = [
            dot(after, list(column)) for column in zip(*(values[i] for i in kept), strict=True)
        ]

        record.append(
            Turn(
                kept=kept,
                evicted=evicted,
                scores=scores,
                terms=verdict.terms,
                protected=verdict.protected,
                channels={entry.token: dict(entry.scores) for entry in verdict.entries},
                before=dict(zip(kept, before, strict=True)),
                after=dict(zip(kept, after, strict=True)),
                output=output,
                ownership_loss=state.get("ownership_loss"),
                learning_rate=state.get("learning_rate"),
                margin=margin,
            )
        )
    return record


def best(scores: dict[int, float], protected: set[int], budget: int) -> tuple[list[int], list[int]]:
    """Tokens to keep and to evict: the protected, then the best, of equals the older."""
    ranked = sorted(scores, key=lambda token: (token not in protected, -scores[token], token))
    return sorted(ranked[:budget]), ranked[budget:]


def untouched(state: State, dimension: int) -> Turn:
    """Give what holds before the first token."""
    return Turn(
        kept=[],
        evicted={},
        scores={},
        terms={},
        protected=set(),
        channels={},
        before={},
        after={},
        output=[0.0] * dimension,
        ownership_loss=state.get("ownership_loss"),
        learning_rate=state.get("learning_rate"),
        margin=math.inf,
    )


def unchanged(last: Turn) -> Turn:
    """Repeat what the last turn left, with nothing decided."""
    return replace(
        last,
        evicted={},
        scores={token: last.scores[token] for token in last.kept},
        terms={token: last.terms[token] for token in last.kept},
        protected=last.protected & set(last.kept),
        channels={token: last.channels[token] for token in last.kept},
        margin=math.inf,
    )
