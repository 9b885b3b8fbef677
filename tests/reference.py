"""The oracle: one dialog, one policy, in plain Python.

Slow, literal and free of the package, so that it can disagree with it. A policy is one function:
it is shown a turn (`Seen`) and the entries in the cache, and answers what every entry is worth
now (`Verdict`). What all policies share, keeping the best within the budget and attending to what
was kept, is written once in `run`. A new policy is a function, a line in `POLICIES` and a line in
`DEFAULTS`.
"""

import json
import math
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

Vector = list[float]

EPSILON = 1e-8

SAME = 1e-12
"""Scores whose relative difference is at most this count as equal in double precision."""


@dataclass
class Entry:
    """One cached token: its number in the dialog, counted from 0, and its scores by channel."""

    token: int
    scores: dict[str, float] = field(default_factory=dict)


@dataclass
class Turn:
    """What happened in one turn, by token.

    `scores`, `terms` and `channels` are of every token that stood for the budget decision; after a
    turn without tokens, of the kept tokens as they stood. `before` and `after` are the attention
    without and with the policy's modulation; `states` is what the policy remembers beside entries.
    `margin` is how far a score is from where the decision would be another, as a share of the
    highest score where all are below 1; infinity where nothing was decided by a score.
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
    states: dict[str, float]
    margin: float


@dataclass
class Dialog:
    """One dialog, and what no policy changes about it, which is worked out once.

    `turns` has the tokens of each turn, ascending over the dialog; a turn may be empty. The rest is
    of each token: vectors, the surprisal in nats, and traits of its text.
    """

    turns: list[list[int]]
    embeddings: list[Vector]
    queries: list[Vector]
    keys: list[Vector]
    values: list[Vector]
    surprisal: list[float] = field(default_factory=list, kw_only=True)
    traits: list[dict[str, float]] = field(default_factory=list, kw_only=True)

    @cached_property
    def tokens(self) -> list[int]:
        """All tokens, of all turns."""
        return [token for new in self.turns for token in new]

    @cached_property
    def mean_embeddings(self) -> list[Vector]:
        """The mean embedding of each turn, without numbers where it has no tokens."""
        return [mean([self.embeddings[token] for token in new]) for new in self.turns]

    @cached_property
    def logits(self) -> list["Logits"]:
        """For each turn, its mean query's with all keys so far; none where it has no tokens."""
        by_turn, so_far = [], []
        for new in self.turns:
            so_far += new
            query = mean([self.queries[token] for token in new])
            by_turn.append({token: logit(query, self.keys[token]) for token in so_far if new})
        return by_turn

    @cached_property
    def attention_in_full(self) -> list[dict[int, float]]:
        """What the mean query of each turn pays to all tokens so far."""
        return [
            dict(zip(logits, attention(list(logits.values())), strict=True))
            for logits in self.logits
        ]


@dataclass
class Seen:
    """What a policy may look at in a turn: the dialog, and which of its turns this is.

    `new` are the turn's own tokens; `logits` are those of the turn's mean query; no threshold
    evicts those `spared`.
    """

    dialog: Dialog
    number: int
    new: list[int]
    mean_embedding: Vector
    logits: "Logits"
    budget: int
    parameters: dict[str, Any]
    spared: set[int] = field(default_factory=set)


@dataclass
class Verdict:
    """What a policy answers; `entries` are all that stand for the budget, new ones included."""

    entries: list[Entry]
    terms: dict[int, dict[str, float]]
    protected: set[int] = field(default_factory=set)
    below_threshold: list[int] = field(default_factory=list)
    threshold_margin: float = math.inf
    places: int | None = None
    """Entries that stay, if not as many as the budget."""


State = dict[str, float]
Logits = dict[int, float]
"""A query's scaled products with the keys of tokens, by token."""
Policy = Callable[[Seen, list[Entry], State], Verdict]


# Arithmetic


def dot(a: Vector, b: Vector) -> float:
    """Inner product."""
    return sum(map(operator.mul, a, b), 0.0)


def mean(vectors: list[Vector]) -> Vector:
    """Mean of the vectors, coordinate by coordinate; of none a vector without numbers."""
    return [math.fsum(column) / len(vectors) for column in zip(*vectors, strict=True)]


def cosine(a: Vector, b: Vector) -> float:
    """Cosine of the angle; 0 where a vector has no length."""
    lengths = math.hypot(*a) * math.hypot(*b)
    return dot(a, b) / lengths if lengths > 0 else 0.0


def share(amount: float, maximum: float) -> float:
    """Amount as a share of the maximum; 0 where the maximum is 0."""
    return amount / maximum if maximum > 0 else 0.0


def logit(query: Vector, key: Vector) -> float:
    """Give q·k / sqrt(d), d the head dimension."""
    return dot(query, key) / math.sqrt(len(query))


def attention(logits: list[float]) -> list[float]:
    """Softmax (equation 1)."""
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
    protected = {entry.token for entry in entries if entry.token in seen.dialog.tokens[:sinks]}
    return Verdict(entries, terms, protected)


def shift(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Keep first tokens, then the newest: as many as dropping half leaves, token by token."""
    keep, held = int(seen.parameters["keep"]), 0
    for _ in range(sum(map(len, seen.dialog.turns[: seen.number + 1]))):
        if held == seen.budget:
            held -= max((held - keep) // 2, 1)
        held += 1
    verdict = sink(replace(seen, parameters={"sinks": keep}), cache, state)
    return replace(verdict, places=held)


def queries_of(seen: Seen, entries: list[Entry]) -> list[tuple[Logits, list[Entry]]]:
    """Give the logits of the queries whose attention counts, each with the entries that it sees."""
    if seen.parameters["queries"] == "mean":
        return [(seen.logits, entries)]
    return each_query(seen, seen.new, entries)


def each_query(
    seen: Seen, tokens: list[int], entries: list[Entry]
) -> list[tuple[Logits, list[Entry]]]:
    """Give those of each token's own query, with the entries up to that token."""
    keys, views = seen.dialog.keys, []
    for token in tokens:
        query = seen.dialog.queries[token]
        visible = [entry for entry in entries if entry.token <= token]
        views.append(({entry.token: logit(query, keys[entry.token]) for entry in visible}, visible))
    return views


def paid(logits: Logits, entries: list[Entry]) -> dict[int, float]:
    """Give the attention of a query to each of the entries, by token."""
    tokens = [entry.token for entry in entries]
    weights = attention([logits[token] for token in tokens])
    return dict(zip(tokens, weights, strict=True))


def newest_tokens(entries: list[Entry], count: int) -> set[int]:
    """Give the tokens of the newest entries."""
    newest_first = sorted((entry.token for entry in entries), reverse=True)
    return set(newest_first[:count])


def part(count: int, share: float) -> int:
    """Return a share of a count, rounded down, for the decimal that the share stands for."""
    return math.floor(count * Fraction(share).limit_denominator(10**6))


def h2o(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Keep a window of the newest, then the largest sums of attention, which every query fades."""
    entries = cache + [Entry(token, {"cumulative": 0.0}) for token in seen.new]
    for logits, visible in queries_of(seen, entries):
        weights = paid(logits, visible)
        for entry in entries:
            faded = seen.parameters["forgetting"] * entry.scores["cumulative"]
            entry.scores["cumulative"] = faded + weights.get(entry.token, 0.0)
    terms = {entry.token: {"cumulative": entry.scores["cumulative"]} for entry in entries}
    window = part(seen.budget, seen.parameters["window"])
    return Verdict(entries, terms, protected=newest_tokens(entries, window))


def h2o_mean(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Keep the highest mean attention over the queries that could see the entry."""
    entries = cache + [Entry(token, {"cumulative": 0.0, "queries": 0.0}) for token in seen.new]
    for logits, visible in queries_of(seen, entries):
        weights = paid(logits, visible)
        for entry in visible:
            entry.scores["cumulative"] += weights[entry.token]
            entry.scores["queries"] += 1
    means = {
        entry.token: {"mean attention": entry.scores["cumulative"] / entry.scores["queries"]}
        for entry in entries
    }
    return Verdict(entries, means)


def tova(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Keep what the last query attends to."""
    entries = cache + [Entry(token) for token in seen.new]
    [(logits, _)] = each_query(seen, seen.new[-1:], entries)
    weights = paid(logits, entries)
    return Verdict(entries, {token: {"last attention": weights[token]} for token in weights})


def snapkv(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Keep the window, and what its queries attend to, averaged over neighbours."""
    entries = cache + [Entry(token) for token in seen.new]
    w = max(1, part(len(seen.new), seen.parameters["window"]))
    voters = each_query(seen, seen.new[-w:], entries)
    votes = [paid(logits, visible) for logits, visible in voters]
    before = entries[: len(entries) - w]
    means = [math.fsum(vote[entry.token] for vote in votes) / w for entry in before]
    half = seen.parameters["kernel"] // 2
    terms = {entry.token: {"pooled attention": 0.0} for entry in entries}
    for place, entry in enumerate(before):
        neighbours = means[max(0, place - half) : place + half + 1]
        terms[entry.token] = {"pooled attention": math.fsum(neighbours) / (2 * half + 1)}
    return Verdict(entries, terms, newest_tokens(entries, min(w, seen.budget)))


def scissorhands(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Evict what was low most often within the history; `low` writes one bit for each query."""
    entries = cache + [Entry(token, {"low": 0.0}) for token in seen.new]
    margin = math.inf
    length = seen.parameters["history"]
    for logits, visible in queries_of(seen, entries):
        weights = paid(logits, visible)
        limit = (seen.parameters["threshold"] - 1e-5) / len(visible)
        for entry in entries:
            record = f"{int(entry.scores['low']):0{length}b}"
            low = entry.token in weights and weights[entry.token] < limit
            entry.scores["low"] = float(int((record + ("1" if low else "0"))[-length:], 2))
        gaps = (abs(weight - limit) * len(visible) for weight in weights.values())
        margin = min(margin, *gaps)
    terms = {
        entry.token: {"negative low count": -float(f"{int(entry.scores['low']):b}".count("1"))}
        for entry in entries
    }
    window = part(seen.budget, seen.parameters["window"])
    return Verdict(entries, terms, newest_tokens(entries, window), [], margin)


def fastgen(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Put the first structure that recovers enough attention before the rest."""
    entries = cache + [Entry(token, {"cumulative": 0.0}) for token in seen.new]
    now = dict.fromkeys((entry.token for entry in entries), 0.0)
    for logits, visible in queries_of(seen, entries):
        for token, weight in paid(logits, visible).items():
            now[token] += weight
    for entry in entries:
        entry.scores["cumulative"] += now[entry.token]
    sums = {entry.token: entry.scores["cumulative"] for entry in entries}

    special = {token for token in sums if token in seen.dialog.tokens[: seen.parameters["sinks"]]}
    by_sum = sorted(sums, key=lambda token: (-sums[token], token))
    heavy = part(len(entries), seen.parameters["frequent"])
    frequent = special | set(by_sum[:heavy])
    local = frequent | newest_tokens(entries, part(len(entries), seen.parameters["local"]))
    margin = math.inf
    chosen = set(sums)
    for structure in (special, frequent, local):
        recovered = math.fsum(now[token] for token in structure) / math.fsum(now.values())
        margin = min(margin, abs(recovered - seen.parameters["recovery"]))
        if recovered >= seen.parameters["recovery"]:
            chosen = structure
            if 0 < heavy < len(by_sum):  # who is frequent made a difference
                gap = sums[by_sum[heavy - 1]] - sums[by_sum[heavy]]
                margin = min(margin, gap / sums[by_sum[0]] or math.inf)
            break
    for entry in entries:
        entry.scores["chosen"] = float(entry.token in chosen)
    most = max(sums.values())
    terms = {
        token: {
            "in the structure": float(token in chosen),
            "frequency": 0.5 * share(sums[token], most),
        }
        for token in sums
    }
    return Verdict(entries, terms, set(), [], margin)


def keydiff(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Keep the keys that are unlike the mean of all keys brought to length 1."""
    entries = cache + [Entry(token) for token in seen.new]
    directions = []
    for entry in entries:
        key = seen.dialog.keys[entry.token]
        length = math.sqrt(dot(key, key))
        directions.append([number / length if length > 0 else 0.0 for number in key])
    anchor = mean(directions)
    return Verdict(
        entries,
        {e.token: {"key difference": -cosine(seen.dialog.keys[e.token], anchor)} for e in entries},
    )


def knorm(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Keep the shortest keys."""
    entries = cache + [Entry(token) for token in seen.new]
    terms = {}
    for entry in entries:
        key = seen.dialog.keys[entry.token]
        terms[entry.token] = {"negative key norm": -math.sqrt(dot(key, key))}
    return Verdict(entries, terms)


def expected_attention(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Keep what a Gaussian query with the past's mean and spread expects to draw most from.

    The spread k'Σk is the mean square of what the centred queries give with the key.
    """
    entries = cache + [Entry(token) for token in seen.new]
    sinks = set(seen.dialog.tokens[: seen.parameters["sinks"]])
    rest = [entry.token for entry in entries if entry.token not in sinks]
    terms = {entry.token: {"expected attention": 0.0} for entry in entries}
    if rest:
        past = [seen.dialog.queries[token] for token in rest]
        middle = mean(past)
        d = len(middle)
        centred = [[x - m for x, m in zip(query, middle, strict=True)] for query in past]
        logits = []
        for token in rest:
            key = seen.dialog.keys[token]
            spread = math.fsum(dot(query, key) ** 2 for query in centred) / len(centred)
            logits.append(dot(middle, key) / math.sqrt(d) + spread / (2 * d))
        largest = max(logits)
        weights = [math.exp(logit - largest) for logit in logits]
        total = math.fsum(weights)
        for token, weight in zip(rest, weights, strict=True):
            length = math.sqrt(dot(seen.dialog.values[token], seen.dialog.values[token]))
            terms[token] = {"expected attention": weight / total * length}
    protected = {
        e.token
        for e in entries
        if e.token in sinks and e.token in seen.dialog.tokens[: seen.budget]
    }
    return Verdict(entries, terms, protected)


def random(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Draw a number for each entry from a hash of 64 bits, of which the upper 24 count.

    Of a key's numbers sign and exponent go in, the upper 9 of their 32 bits.
    """
    entries = cache + [Entry(token) for token in seen.new]
    terms = {}
    for entry in entries:
        drawn = int(seen.parameters["chance_seed"])
        bits = [struct.pack("<f", number) for number in seen.dialog.keys[entry.token]]
        words = [seen.new[-1] + 1, entry.token + 1]
        words += [int.from_bytes(number, "little") >> 23 for number in bits]
        for word in words:
            drawn = (drawn ^ word) * 0x9E3779B97F4A7C15 % 2**64
            drawn ^= drawn >> 29
        terms[entry.token] = {"chance": (drawn >> 40) / 2**24}
    return Verdict(entries, terms)


def oracle(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Keep what the full cache will attend to most from now on."""
    entries = cache + [Entry(token) for token in seen.new]
    come = dict.fromkeys((entry.token for entry in entries), 0.0)
    for weights in seen.dialog.attention_in_full[seen.number :]:
        for token in come:
            come[token] += weights.get(token, 0.0)  # a turn without tokens pays none
    return Verdict(entries, {token: {"attention to come": come[token]} for token in come})


def fd_kvc(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Algorithm 1 up to the budget; `state` carries the learning rate and the ownership loss."""
    return algorithm_1(seen, cache, state, seen.parameters["w_c"])


def fd_kvc_adaptive(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Algorithm 1 with a cumulative weight that follows the query."""
    recent = [entry.scores["recency"] for entry in cache]
    cosines = [cosine(seen.dialog.embeddings[entry.token], seen.mean_embedding) for entry in cache]
    near = dot(recent, [similarity - seen.parameters["theta"] for similarity in cosines])
    state["continuity"] = near / (math.fsum(recent) + EPSILON)
    shifted = seen.parameters["w_c"] + seen.parameters["kappa"] * state["continuity"]
    state["cumulative_weight"] = min(max(shifted, 0.0), 1.0)
    return algorithm_1(seen, cache, state, state["cumulative_weight"])


def algorithm_1(seen: Seen, old: list[Entry], state: State, w_c: float) -> Verdict:
    """Take the turn of Algorithm 1 with this weight of cumulative attention."""
    below_threshold: list[int] = []
    margin = math.inf
    if old:
        # 1. Cumulative attention (equation 1)
        weights = attention([seen.logits[entry.token] for entry in old])
        for entry, weight in zip(old, weights, strict=True):
            entry.scores["cumulative"] += weight

        # 2. Recency decay (equation 2)
        for entry in old:
            entry.scores["recency"] *= seen.parameters["gamma"]

        # 3. Relevance reinforcement (equations 3 and 4), at the rate that the last turn left
        raw = [cosine(seen.dialog.embeddings[entry.token], seen.mean_embedding) for entry in old]
        lowest, highest = min(raw), max(raw)
        for entry, similarity in zip(old, raw, strict=True):
            relevance = (similarity - lowest) / (highest - lowest + EPSILON)
            entry.scores["recency"] += state["learning_rate"] * relevance

        # 4. Adaptive learning rate (equations 5, 6 and 7)
        hybrid = {token: sum(terms.values()) for token, terms in hybrid_terms(old, w_c).items()}
        highest_hybrid = max(hybrid.values())
        shares = [share(h, highest_hybrid) for h in hybrid.values()]
        state["ownership_loss"] = math.fsum(h * (1 - h) for h in shares) / len(shares)
        scale = 1 + seen.parameters["mu"] * state["ownership_loss"]
        state["learning_rate"] = seen.parameters["alpha_0"] / scale

        # 5. Soft eviction (equation 8)
        threshold = seen.parameters["tau"] * highest_hybrid
        free = {token: h for token, h in hybrid.items() if token not in seen.spared}
        below_threshold = [token for token, h in free.items() if h < threshold]
        margin = min((abs(h - threshold) for h in free.values()), default=math.inf)

    entries = [entry for entry in old if entry.token not in below_threshold]
    entries += [Entry(token, new_fd_kvc(seen, token)) for token in seen.new]
    return Verdict(entries, hybrid_terms(entries, w_c), set(), below_threshold, margin)


def new_fd_kvc(seen: Seen, token: int) -> dict[str, float]:
    """Start with c = 1, and ρ by similarity."""
    similarity = cosine(seen.dialog.embeddings[token], seen.mean_embedding)
    return {"cumulative": 1.0, "recency": max(similarity, 0.0)}


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


def surprisal(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Keep a window of the newest, then what was surprising; what is repeated goes first."""
    for entry in cache:
        entry.scores["surprisal"] *= seen.parameters["decay"]
    entries = cache + [Entry(token, new_surprisal(seen, token)) for token in seen.new]
    most = max(entry.scores["surprisal"] for entry in entries)
    terms, margin = {}, math.inf
    for entry in entries:
        mine = seen.dialog.embeddings[entry.token]
        for token in seen.new:
            if token > entry.token:
                like = min(cosine(mine, seen.dialog.embeddings[token]), 1.0)
                entry.scores["redundancy"] = max(entry.scores["redundancy"], like)
        limit = seen.parameters["redundancy"]
        margin = min(margin, abs(entry.scores["redundancy"] - limit))
        terms[entry.token] = {
            "surprisal": share(entry.scores["surprisal"], most),
            "redundancy": -2.0 if entry.scores["redundancy"] > limit else 0.0,
        }
    window = part(seen.budget, seen.parameters["window"])
    return Verdict(entries, terms, newest_tokens(entries, window), [], margin)


def new_surprisal(seen: Seen, token: int) -> dict[str, float]:
    """Start with the token's surprisal, repeated by nothing."""
    return {"surprisal": seen.dialog.surprisal[token], "redundancy": 0.0}


def learned(seen: Seen, cache: list[Entry], state: State) -> Verdict:
    """Keep a window of the newest, then what a linear model scores highest."""
    for entry in cache:
        entry.scores["age"] += 1
    entries = cache + [Entry(token, new_learned(seen, token)) for token in seen.new]
    terms = {}
    for entry in entries:
        word = trait(seen, entry.token, "word")
        for other in entries:
            if other.token > entry.token and trait(seen, other.token, "word") == word > 0:
                entry.scores["repeated"] = 1.0
        features = {"age": math.log(1 + entry.scores["age"]), "repeated": entry.scores["repeated"]}
        terms[entry.token] = {
            term: sum(
                known["weight"]
                * (features.get(name, trait(seen, entry.token, name)) - known["mean"])
                / known["spread"]
                for name, known in LEARNED.items()
                if name in names
            )
            for term, names in LEARNED_TERMS.items()
        }
    window = part(seen.budget, seen.parameters["window"])
    return Verdict(entries, terms, newest_tokens(entries, window), [])


def trait(seen: Seen, token: int, name: str) -> float:
    """Return what the text of a token says of it, 0 where it is not known."""
    return seen.dialog.traits[token].get(name, 0.0) if seen.dialog.traits else 0.0


def new_learned(seen: Seen, token: int) -> dict[str, float]:
    """Start at no age, repeated by nothing."""
    return {"age": 0.0, "repeated": 0.0}


LEARNED: dict[str, dict[str, float]] = json.loads(
    (Path(__file__).parents[1] / "fdkvc" / "policies" / "learned.json").read_text("utf-8")
)["features"]
"""The default weights."""

LEARNED_TERMS = {
    "age": ["age"],
    "repeated": ["repeated"],
    "word": ["surprisal", "capital", "digit", "punctuation", "mark"],
    "neighbours": ["near_surprisal", "near_capital", "near_digit"],
    "position": ["position"],
    "speaker": ["user"],
}


NEW: dict[str, Callable[[Seen, int], dict[str, float]]] = {
    **dict.fromkeys(("fd-kvc", "fd-kvc-adaptive"), new_fd_kvc),
    "surprisal": new_surprisal,
    "learned": new_learned,
    "h2o": lambda seen, token: {"cumulative": 0.0},
    "h2o-mean": lambda seen, token: {"cumulative": 0.0, "queries": 0.0},
    "scissorhands": lambda seen, token: {"low": 0.0},
    "fastgen": lambda seen, token: {"cumulative": 0.0},
}
"""What a new entry starts with, where a policy remembers anything of it."""


def fd_kvc_modulation(kept: list[Entry], parameters: dict[str, float]) -> list[float]:
    """Factor on each kept entry's attention before it is normalised again (equation 9)."""
    highest = max(entry.scores["recency"] for entry in kept)
    return [
        (0.5 + 0.5 * share(entry.scores["recency"], highest)) ** parameters["beta"]
        for entry in kept
    ]


# Policies around policies


@dataclass
class Around:
    """A wrapper in a run: its key and hyperparameters, who speaks in each turn, and what."""

    key: str
    parameters: dict[str, Any]
    speakers: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def window(around: Around, seen: Seen, verdict: Verdict, ties: tuple[float, float]) -> Verdict:
    """Protect the newest, too."""
    newest = newest_tokens(verdict.entries, part(seen.budget, around.parameters["share"]))
    return replace(verdict, protected=verdict.protected | newest)


def whitelist(around: Around, seen: Seen, verdict: Verdict, ties: tuple[float, float]) -> Verdict:
    """Protect the oldest of what the first turns, a speaker or any said of some words, too."""
    return protecting(around, seen, verdict, part(seen.budget, around.parameters["most"]))


def sinks(around: Around, seen: Seen, verdict: Verdict, ties: tuple[float, float]) -> Verdict:
    """Protect the first tokens, too."""
    return protecting(around, seen, verdict, seen.budget)


def protecting(around: Around, seen: Seen, verdict: Verdict, most: int) -> Verdict:
    """Protect the oldest of what is listed, too."""
    listed = LISTED[around.key](around, seen)
    held = sorted(entry.token for entry in verdict.entries if entry.token in listed)
    return replace(verdict, protected=verdict.protected | set(held[:most]))


def listed_in_whitelist(around: Around, seen: Seen) -> set[int]:
    """Give the tokens of the first turns, of a speaker, and of some words."""
    settings = around.parameters
    listed = set()
    for number, tokens in enumerate(seen.dialog.turns):
        if (
            number < settings["first"]
            or number == settings["at_turn"]
            or settings["speaker"] in around.speakers[number : number + 1]
        ):
            listed |= set(tokens)
        marked = settings["words"].split("+")
        listed |= {token for token in tokens if around.words and around.words[token] in marked}
    return listed


LISTED: dict[str, Callable[[Around, Seen], set[int]]] = {
    "whitelist": listed_in_whitelist,
    "sinks": lambda around, seen: set(seen.dialog.tokens[: around.parameters["n"]]),
}


def turns(around: Around, seen: Seen, verdict: Verdict, ties: tuple[float, float]) -> Verdict:
    """Let the policy pick of the turn's own tokens; then go by what was picked, and by place."""
    scores = {token: sum(terms.values()) for token, terms in verdict.terms.items()}
    many = -part(-len(seen.new), around.parameters["picks"])
    picked, _, margin = best({token: scores[token] for token in seen.new}, set(), many, ties)
    if not many:
        picked, margin = [], math.inf
    so_far = seen.new[-1] + 1
    terms = {}
    for entry in verdict.entries:
        if entry.token in seen.new:
            entry.scores["picked"] = float(entry.token in picked)
        passed = so_far * (entry.scores["picked"] - 1)
        terms[entry.token] = {"position": float(entry.token), "passed over": passed}
    return replace(verdict, terms=terms, threshold_margin=min(verdict.threshold_margin, margin))


def blocks(around: Around, seen: Seen, verdict: Verdict, ties: tuple[float, float]) -> Verdict:
    """Give every entry the terms of its page: their means, or those of its best entry."""
    pages = by_page(list(verdict.terms), around.parameters["size"])
    terms: dict[int, dict[str, float]] = {}
    for tokens in pages:
        rows = [verdict.terms[token] for token in tokens]
        if around.parameters["score"] == "mean":
            worth = {name: math.fsum(row[name] for row in rows) / len(rows) for name in rows[0]}
        else:
            worth = max(rows, key=lambda row: sum(row.values()))
        terms |= {token: dict(worth) for token in tokens}
    return replace(verdict, terms=terms)


def by_page(tokens: list[int], size: int) -> list[list[int]]:
    """Put tokens that share a page together."""
    pages: dict[int, list[int]] = {}
    for token in sorted(tokens):
        pages.setdefault(token // size, []).append(token)
    return list(pages.values())


def best_pages(
    scores: dict[int, float], budget: int, size: int, ties: tuple[float, float]
) -> tuple[list[int], list[int], float]:
    """Keep and evict as `best`, by whole pages; of a page larger than the budget a part."""
    pages = by_page(list(scores), size)
    worth = {tokens[0]: scores[tokens[0]] for tokens in pages}
    chosen, _, margin = best(worth, set(), max(budget // size, 1), ties)
    kept = [token for tokens in pages if tokens[0] in chosen for token in tokens][:budget]
    return kept, sorted(set(scores) - set(kept)), margin


WRAPPERS: dict[str, Callable[[Around, Seen, Verdict, tuple[float, float]], Verdict]] = {
    "window": window,
    "whitelist": whitelist,
    "sinks": sinks,
    "turns": turns,
    "blocks": blocks,
}


POLICIES: dict[str, Policy] = {
    "fifo": fifo,
    "full": fifo,
    "sink": sink,
    "shift": shift,
    "h2o": h2o,
    "h2o-mean": h2o_mean,
    "tova": tova,
    "snapkv": snapkv,
    "scissorhands": scissorhands,
    "fastgen": fastgen,
    "expected-attention": expected_attention,
    "keydiff": keydiff,
    "knorm": knorm,
    "random": random,
    "oracle": oracle,
    "fd-kvc": fd_kvc,
    "fd-kvc-adaptive": fd_kvc_adaptive,
    "surprisal": surprisal,
    "learned": learned,
}

PAPERS = {"gamma": 0.88, "alpha_0": 0.3, "mu": 0.4, "tau": 0.02, "beta": 0.25, "w_c": 0.45}

DEFAULTS: dict[str, dict[str, Any]] = {
    "fifo": {},
    "full": {},
    "sink": {"sinks": 4},
    "shift": {"keep": 0},
    "h2o": {"window": 0.5, "queries": "mean", "forgetting": 1.0},
    "h2o-mean": {"queries": "mean"},
    "tova": {},
    "snapkv": {"window": 0.25, "kernel": 5},
    "scissorhands": {"history": 8, "threshold": 1.0, "window": 0.1, "queries": "mean"},
    "fastgen": {"recovery": 0.9, "sinks": 4, "frequent": 0.3, "local": 0.3, "queries": "mean"},
    "expected-attention": {"sinks": 4},
    "keydiff": {},
    "knorm": {},
    "random": {"chance_seed": 0},
    "oracle": {},
    "fd-kvc": PAPERS,
    "fd-kvc-adaptive": {**PAPERS, "kappa": 0.5, "theta": 0.5},
    "surprisal": {"window": 0.5, "decay": 0.8, "redundancy": 0.75},
    "learned": {"window": 0.5},
}

RELATIVE = (1.5e-6, 0.0)
"""Scores within this share of the cutoff tie with it."""

TIES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("fifo", "full", "sink", "shift", "scissorhands", "random"), (0.0, 0.0)),
    **dict.fromkeys(
        ("keydiff", "fd-kvc", "fd-kvc-adaptive", "surprisal", "learned"), (1.5e-6, 1.5e-6)
    ),
}
"""Policies of which other scores tie: exact ones, and sums of what is of the size of 1."""

MODULATIONS: dict[str, Callable[[list[Entry], dict[str, float]], list[float]]] = {
    "fd-kvc": fd_kvc_modulation,
    "fd-kvc-adaptive": fd_kvc_modulation,
}


# The dialog


def run(
    policy: str,
    parameters: dict[str, Any],
    budget: int,
    dialog: Dialog,
    around: Sequence[Around] = (),
) -> list[Turn]:
    """Pass one dialog through one policy, and return what happened in each turn.

    `parameters` are hyperparameters other than their `DEFAULTS`; `around` is what stands around the
    policy, the innermost first.
    """
    tokens = dialog.tokens
    assert tokens == sorted(set(tokens)), "tokens ascend over the dialog"
    if policy == "full":
        budget = max(budget, len(tokens))
    settings = {**DEFAULTS[policy], **parameters}
    state: State = {}
    if policy.startswith("fd-kvc"):
        state = {"ownership_loss": 0.0, "learning_rate": settings["alpha_0"]}
    if policy == "fd-kvc-adaptive":
        state |= {"continuity": 0.0, "cumulative_weight": settings["w_c"]}

    cache: list[Entry] = []
    record: list[Turn] = []
    for number, new in enumerate(dialog.turns):
        if not new:
            last = (
                record[-1] if record else untouched(state, len(dialog.values[0]) if tokens else 0)
            )
            record.append(unchanged(last))
            continue
        seen = Seen(
            dialog=dialog,
            number=number,
            new=new,
            mean_embedding=dialog.mean_embeddings[number],
            logits=dialog.logits[number],
            budget=budget,
            parameters=settings,
        )
        for wrapper in around:
            seen.spared |= LISTED[wrapper.key](wrapper, seen) if wrapper.key in LISTED else set()
        verdict = POLICIES[policy](seen, cache, state)
        ties, size = TIES.get(policy, RELATIVE), 1
        for wrapper in around:
            verdict = WRAPPERS[wrapper.key](wrapper, seen, verdict, ties)
            ties = (0.0, 0.0) if wrapper.key == "turns" else ties
            size = wrapper.parameters.get("size", size)
        scores = {token: sum(terms.values()) for token, terms in verdict.terms.items()}

        most = budget if verdict.places is None else verdict.places
        if size > 1:
            kept, over, margin = best_pages(scores, most, size, ties)
        else:
            kept, over, margin = best(scores, verdict.protected, most, ties)
        cache = [entry for entry in verdict.entries if entry.token in kept]
        evicted = dict.fromkeys(verdict.below_threshold, "threshold")
        evicted |= dict.fromkeys(over, "budget")
        margin = min(margin, verdict.threshold_margin)

        before = attention([seen.logits[token] for token in kept])
        after = before
        if policy in MODULATIONS:
            factors = MODULATIONS[policy](cache, settings)
            products = [weight * factor for weight, factor in zip(before, factors, strict=True)]
            total = math.fsum(products)
            after = [product / total for product in products]
        values = [dialog.values[token] for token in kept]
        output = [dot(after, list(column)) for column in zip(*values, strict=True)]

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
                states=dict(state),
                margin=margin,
            )
        )
    return record


def best(
    scores: dict[int, float], protected: set[int], budget: int, ties: tuple[float, float]
) -> tuple[list[int], list[int], float]:
    """Tokens to keep and to evict, and by what margin.

    The protected stay, then the best. Of those that are about as good as the last of them, the
    older stay: `ties` says how far they may differ from it, as a share of it and beside that.
    """
    free = [token for token in sorted(scores) if token not in protected]
    room = max(budget - (len(scores) - len(free)), 0)
    if len(free) <= room:
        return sorted(scores), [], math.inf
    if not room:
        kept = sorted(protected & set(scores))[:budget]
        return kept, sorted(set(scores) - set(kept)), math.inf
    cutoff = sorted((scores[token] for token in free), reverse=True)[room - 1]
    reach = ties[0] * abs(cutoff) + ties[1]
    edges = (cutoff - reach, cutoff + reach)

    def choice(scores: dict[int, float]) -> set[int]:
        above = [token for token in free if scores[token] > edges[1]]
        tied = [token for token in free if edges[0] <= scores[token] <= edges[1]]
        return {*above, *tied[: room - len(above)]}

    chosen = choice(scores)
    low, high = edges
    moves = [
        move
        for token in free
        if abs((score := scores[token]) - cutoff) > SAME * abs(cutoff)
        for move in (
            (abs(score - low), token, cutoff if score < low else -math.inf),
            (abs(score - high), token, cutoff if score > high else math.inf),
        )
    ]
    margin = math.inf
    for way, token, moved in sorted(moves):
        if choice({**scores, token: moved}) != chosen:
            margin = way
            break
    highest = max(abs(score) for score in scores.values())
    kept = sorted((protected & set(scores)) | chosen)
    evicted = [token for token in free if token not in chosen]
    return kept, evicted, margin / min(highest, 1.0) if highest else math.inf


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
        states=dict(state),
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
