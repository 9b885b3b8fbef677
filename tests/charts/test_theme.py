"""Colours: a policy has one look everywhere; nothing is told by colour alone."""

import tomllib
from colorsys import rgb_to_hsv
from itertools import combinations

import pytest

from fdkvc.charts import parts, theme
from fdkvc.charts.results import curve_chart
from fdkvc.policies import CANDIDATES, POLICIES, policy_named, read_policy
from fdkvc.policies.ways import way_words
from tests.charts.test_charts_benchmark import CURVE
from tests.command_line import ROOT

both = pytest.mark.parametrize("seen", [theme.LIGHT, theme.DARK], ids=["light", "dark"])


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21 (WCAG 2.2, contrast ratio)."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    """Return the relative luminance of a colour in hexadecimal, from 0 to 1 (WCAG 2.2)."""
    shares = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return sum(w * s for w, s in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def hue(colour: str) -> float:
    """Return the hue of a colour, in degrees."""
    channels = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return 360 * rgb_to_hsv(*channels)[0]


def degrees_between(one: str, other: str) -> float:
    """Return how far two hues are from each other, from 0 to 180 degrees."""
    difference = abs(hue(one) - hue(other)) % 360
    return min(difference, 360 - difference)


def chroma(colour: str) -> int:
    channels = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return max(channels) - min(channels)


@both
def test_policies_can_be_seen_and_have_no_topics_colour(seen: theme.Theme) -> None:
    assert all(chroma(hue) >= 80 for hue in theme.TOPICS)
    assert all(contrast(tint, seen.paper) >= 4.5 for tint in seen.policies)  # names have it, too
    assert not {*seen.policies, *seen.terms} & {*theme.TOPICS, theme.TOPICLESS}


@both
def test_fd_kvc_alone_has_a_hue_and_no_topic_has_it(seen: theme.Theme) -> None:
    names = ["FIFO", "H2O", policy_named("fd-kvc").title, "FD-KVC γ=0.8"]
    *others, fd_kvc, variant = theme.policy_tints(names, seen)

    assert fd_kvc == variant
    assert fd_kvc not in others
    assert chroma(fd_kvc) >= 80
    assert min(degrees_between(fd_kvc, topic) for topic in theme.TOPICS) >= 30
    assert contrast(fd_kvc, seen.paper) >= 4.5


def test_a_policy_looks_the_same_everywhere_and_like_no_other() -> None:
    names = [policy.label for policy in POLICIES.values()]
    together = theme.looks(names)

    assert {*names} == {*theme.POLICIES} - {""}
    assert together == [theme.looks([name])[0] for name in names]
    assert len({look.place for look in together}) == len(names)
    assert len({(look.shape, str(look.dash)) for look in together}) == len(names)


@pytest.mark.parametrize("name", ["sinks(fd-kvc)", "blocks(window(tova))", "h2o:window=0.25"])
def test_a_variant_has_its_policys_colour_with_another_mark_and_dash(name: str) -> None:
    policy = read_policy(name)
    plain, variant = theme.looks([type(policy.core).label, policy.title])

    assert plain.place == variant.place
    assert plain.shape != variant.shape
    assert plain.dash != variant.dash


@pytest.mark.parametrize("start", ["", "FD-KVC "])
def test_of_as_many_policies_as_there_may_be_no_two_look_alike(start: str) -> None:
    looks = theme.looks([f"{start}{number}" for number in range(12)])
    assert all(one != two for one, two in combinations(looks, 2))


@pytest.mark.parametrize("colour", [theme.TOPICLESS, *theme.TOPICS])
def test_a_letter_can_be_read_on_its_topic(colour: str) -> None:
    assert contrast(theme.letter_ink(colour), colour) >= 4.5


def test_the_page_has_a_colour_of_its_own_in_either_theme() -> None:
    with (ROOT / ".streamlit" / "config.toml").open("rb") as file:
        config = tomllib.load(file)["theme"]

    for name, seen in (("light", theme.LIGHT), ("dark", theme.DARK)):
        accent = config[name]["primaryColor"]
        assert contrast(accent, seen.paper) >= 4.5
        assert chroma(accent) <= 40, "red means wrong; the other hues are topics and FD-KVC"


@pytest.mark.long
@both
def test_a_sweep_of_a_policy_has_the_policys_colour(seen: theme.Theme) -> None:
    for policy, place in (("FD-KVC", 3), ("H2O", 2)):
        spec = curve_chart(CURVE, "retention", "t", "w", 0.25, seen, policy)
        assert f"'color': '{seen.policies[place]}'" in str(spec)
        assert not [term for term in seen.terms if term in str(spec)]


def test_a_way_has_the_colour_of_its_policy_whatever_it_is_called() -> None:
    ways = {way_words(name): read_policy(name).title for name in CANDIDATES}
    tints = parts.policy_scale(ways, theme.LIGHT).to_dict()["range"]
    assert tints == [theme.policy_tints([title], theme.LIGHT)[0] for title in ways.values()]
    named = dict(zip(CANDIDATES, tints, strict=True))
    assert named["sink"] == theme.POLICIES["Sink+Window"][0]
    assert named["sinks(weighted-recency)"] == theme.POLICIES["Weighted recency"][0]


def test_two_variants_of_a_policy_differ_in_a_legend_which_shows_no_dash() -> None:
    one, other = theme.looks(["H2O + prompt", "H2O + sinks"])
    assert one.place == other.place
    assert one.shape != other.shape
