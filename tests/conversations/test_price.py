"""What a shorter text costs and saves in a prefix cache, request by request."""

import random

import pytest

from fdkvc.commands.main import main
from fdkvc.conversations.price import LIST_PRICES, Prices, Rewrite, returned_tokens


@pytest.mark.parametrize(("requests", "share"), [(1, 8.0), (10, 46.5), (100, 89.7)])
def test_a_rewrite_pays_from_the_published_shares_on(requests: int, share: float) -> None:
    text = 100_000
    for left, paid in ((share - 0.1, requests), (share + 0.1, 0)):
        stays = round(text * left / 100)
        assert Rewrite(text, stays, stays, 0, requests).paid_after(LIST_PRICES) == paid


def in_a_cache(rewrite: Rewrite, prices: Prices) -> list[float]:
    """Return the dollars after each request, as a cache of tokens would book them."""
    booked = []
    now = rewrite.gaps[0]
    dollars, used = 0.0, 0.0
    text_price = prices.read if now <= 60 * prices.minutes else prices.write
    if rewrite.summary:
        dollars += rewrite.text * text_price + rewrite.summary * prices.output
        used = now
    cached = rewrite.stays - rewrite.changed
    sent = rewrite.stays
    for request in range(1, rewrite.requests + 1):
        now += rewrite.gaps[request]
        if now - used > 60 * prices.minutes:
            cached = 0
        used = now
        sent += sum(tokens for place, tokens in rewrite.returned if place == request)
        dollars += cached * prices.read + (sent - cached) * prices.write
        cached = sent
        booked.append(dollars / 1e6)
    return booked


@pytest.mark.parametrize("seed", range(20))
def test_costs_are_those_of_a_cache_that_books_each_token(seed: int) -> None:
    drawn = random.Random(seed)
    stays = drawn.randrange(1, 5000)
    requests = drawn.randrange(1, 40)
    back = [(drawn.randrange(1, requests + 1), drawn.randrange(500)) for _ in range(6)]
    changed, summary = drawn.randrange(stays + 1), drawn.choice([0, 300])
    gaps = tuple(drawn.choice([0, 9, 250, 900]) for _ in range(requests + 1))
    rewrite = Rewrite(9000, stays, changed, summary, requests, tuple(back), gaps)
    prices = Prices(drawn.random(), drawn.random(), drawn.random())
    costs = rewrite.costs(prices)

    assert [spent for spent, _ in costs] == pytest.approx(in_a_cache(rewrite, prices))
    waits = [gaps[0] + gaps[1], *gaps[2:]]
    late = sum(wait > 300 for wait in waits)
    expected = 9000 * (late * prices.write + (requests - late) * prices.read) / 1e6
    assert costs[-1][1] == pytest.approx(expected)
    paid = rewrite.paid_after(prices)
    later = costs[paid - 1 :] if paid else costs[-1:]
    assert all((spent <= without) == bool(paid) for spent, without in later)
    assert paid <= 1 or costs[paid - 2][0] > costs[paid - 2][1]


def test_what_came_back_is_in_the_next_request() -> None:
    assert returned_tokens([(3, 10), (5, 20), (9, 40)], [4, 6]) == ((1, 10), (2, 20))
    assert Rewrite(9, 1, 1, 0, 0).paid_after(LIST_PRICES) == 0


@pytest.mark.parametrize("text", ["1,2", "a,b,c", "1,-2,0", "1,2,3,4,5", "nan,1,1"])
def test_prices_are_three_numbers(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forgot", "--prices", text]) == 2
    assert "three numbers" in capsys.readouterr().err


def test_the_command_takes_prices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forgot", "--prices", "2,1,0", "--ways", "reread(messages(fifo))"]) == 0
    assert "(prices 2,1,0)" in " ".join(capsys.readouterr().out.split())
