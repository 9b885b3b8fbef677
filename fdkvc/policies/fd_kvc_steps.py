"""The steps of FD-KVC's turn: the paper's, and those of its options."""

from __future__ import annotations

from fdkvc.policies.base import Step

BEYOND = "beyond the paper"

CUMULATIVE = Step(
    "Cumulative attention",
    r"\begin{gathered} c_i \leftarrow c_i + a_i \\ a_i = \operatorname{softmax}"
    r"\!\left(\bar q_t^\top k_i / \sqrt d\right) \end{gathered}",
    "Eq. 1",
    reads=("cumulative", "attention"),
    writes=("cumulative",),
    kind="change",
)

DECAY = Step(
    "Recency decay",
    r"\rho_i \leftarrow \gamma\,\rho_i",
    "Eq. 2",
    reads=("recency before",),
    writes=("recency decayed",),
    kind="change",
)


def _reinforcement(relevance: str, source: str) -> Step:
    return Step(
        "Relevance reinforcement",
        rf"\begin{{gathered}} \rho_i \leftarrow \rho_i + \alpha_t\, r_i,\quad s_i = {relevance} \\ "
        r"r_i = \frac{s_i - \min_j s_j}{\max_j s_j - \min_j s_j + \epsilon} \end{gathered}",
        source,
        reads=("recency decayed", "relevance", "learning rate before"),
        writes=("recency",),
        kind="change",
    )


BY_SIMILARITY = _reinforcement(r"\cos(e_i, \bar e_q)", "Eqs. 3 and 4")
BY_ATTENTION = _reinforcement("a_i", f"Eqs. 3 and 4 with attention, {BEYOND}")

ADAPTIVE_RATE = Step(
    "Adaptive learning rate",
    r"\begin{gathered} \mathcal L_t = \tfrac{1}{|\mathcal C|}\sum_i \hat h_i (1 - \hat h_i) \\ "
    r"\hat h_i = h_i / \max_j h_j,\quad \alpha_t = \frac{\alpha_0}{1 + \mu \mathcal L_t} "
    r"\end{gathered}",
    "Eqs. 5 to 7",
    reads=("hybrid score",),
    writes=("ownership_loss", "learning_rate"),
    kind="rate",
)

AVERAGING_RATE = Step(
    "Learning rate of an average",
    r"\alpha_t = 1 - \gamma \;\Rightarrow\; \rho_i \leftarrow \gamma\,\rho_i + (1 - \gamma)\,r_i",
    f"in place of Eq. 7, {BEYOND}",
    writes=("learning_rate",),
    kind="rate",
)

SHIFTED_WEIGHTS = Step(
    "Adaptive channel weights",
    r"\begin{gathered} u_t = \frac{\sum_i \rho_i \left(\cos(e_i, \bar e_q) - \theta\right)}"
    r"{\sum_i \rho_i + \epsilon} \\ w_{c,t} = \min(\max(w_c + \kappa\,u_t,\, 0),\, 1) \\ "
    r"w_{\rho,t} = 1 - w_{c,t} \end{gathered}",
    f"in place of fixed weights, {BEYOND}; ρ before this turn",
    reads=("recency before",),
    writes=("continuity", "cumulative_weight"),
    kind="rate",
)


SALIENCE = Step(
    "Salience",
    r"\sigma_i \leftarrow \delta\,\sigma_i, \qquad \text{new: } \sigma_j = -\ln p_j",
    f"{BEYOND}; p is how probable the token was when it came",
    reads=("salience",),
    writes=("salience",),
    kind="change",
    includes_new=True,
)

REDUNDANCY = Step(
    "Redundancy",
    r"d_i \leftarrow \max\!\Big(d_i,\; \max_{j \text{ new},\, j > i} \cos(e_i, e_j)\Big)",
    f"{BEYOND}; a new entry starts at 0, and those of its turn that come later count, too",
    reads=("redundancy",),
    writes=("redundancy",),
    kind="change",
    includes_new=True,
)


def eviction(
    shifted: bool = False,
    by_attention: bool = False,
    salience: bool = False,
    redundancy: bool = False,
) -> Step:
    """Return the step that removes and inserts, with what the options that are on put into it."""
    w_c, w_rho = ("w_{c,t}", r"w_{\rho,t}") if shifted else ("w_c", r"w_\rho")
    h = rf"{w_c}\,\hat c_i + {w_rho}\,\rho_i"
    hats = r"\hat c_i = c_i / \max_j c_j"
    first, beyond = "", ["new entries by attention"] if by_attention else []
    if salience:
        h = rf"(1 - w_\sigma)\,({h}) + w_\sigma\,\hat\sigma_i"
        hats += r",\; \hat\sigma_i = \sigma_i / \max_j \sigma_j"
        beyond.append("with salience")
    if redundancy:
        first = r"s_i = h_i - (1 + \max_j h_j)\,[d_i > \eta] \\ "
        beyond.append("what is said again goes first")
    rho = r"a_j / \max_l a_l" if by_attention else r"\max(\cos(e_j, \bar e_q),\, 0)"
    return Step(
        "Eviction and insertion",
        rf"\begin{{gathered}} h_i = {h},\; {hats} \\ {first}"
        rf"\text{{new: }} c_j = 1,\; \rho_j = {rho} \\ "
        r"\text{evict } h_i < \tau \max_j h_j,\quad \text{keep the top } B \end{gathered}",
        ", ".join(["Eqs. 5 and 8", *beyond, *[BEYOND] * bool(beyond)]),
        reads=("hybrid score", "threshold"),
        writes=("score",),
        kind="evict",
    )


MODULATION = Step(
    "Modulated attention",
    r"\begin{gathered} \hat w_i = \frac{w_i\,(0.5 + 0.5\,\hat\rho_i)^\beta}"
    r"{\sum_j w_j\,(0.5 + 0.5\,\hat\rho_j)^\beta} \\ "
    r"\hat\rho_i = \rho_i / \max_j \rho_j \end{gathered}",
    "Eq. 9",
    reads=("attention_before",),
    writes=("attention_after",),
    kind="attention",
)
