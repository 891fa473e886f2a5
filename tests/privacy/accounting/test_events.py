"""Events are exact values: what is written is what comes back, and nothing senseless is ever written."""

import json
import math

import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import PlanError
from tacit.privacy.accounting import events
from tacit.privacy.accounting.events import (
    additive_delta,
    coin_flip,
    compose,
    from_json,
    gaussian,
    is_planning_only,
    laplace,
    poisson_gaussian,
    repeat,
    repeat_and_select,
    to_json,
    with_additive_delta,
    without_additive_delta,
)

finite = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
share = st.floats(min_value=0, max_value=1)
counts = st.integers(min_value=0, max_value=10**6)
leaves = st.one_of(
    finite.map(gaussian),
    finite.map(laplace),
    st.builds(poisson_gaussian, share, finite, counts),
    st.just(dp_event.NoOpDpEvent()),
    st.just(dp_event.NonPrivateDpEvent()),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(compose),
        st.builds(repeat, inner, st.integers(0, 1000)),
        st.builds(coin_flip, share, inner),
        st.builds(with_additive_delta, inner, share),
        st.builds(repeat_and_select, inner, st.floats(1, 1e6), st.one_of(st.just(math.inf), st.floats(0, 100))),
    ),
    max_leaves=8,
)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(trees)
def test_every_event_comes_back_bit_for_bit(event: dp_event.DpEvent) -> None:
    text = to_json(event)
    back = from_json(text)
    assert back == event
    assert to_json(back) == text


def test_text_is_canonical_and_stable() -> None:
    assert to_json(gaussian(1.1)) == '{"noise":1.1,"type":"gaussian"}'
    assert to_json(gaussian(1)) == to_json(gaussian(1.0))
    assert to_json(gaussian(-0.0)) == to_json(gaussian(0.0))
    assert (
        to_json(poisson_gaussian(0.01, 1.0, 600))
        == '{"event":{"event":{"noise":1.0,"type":"gaussian"},"rate":0.01,"type":"poisson"},'
        '"times":600,"type":"repeated"}'
    )
    assert json.loads(to_json(repeat_and_select(gaussian(2), 20, math.inf)))["shape"] == "poisson"
    assert to_json(gaussian(1.1)) != to_json(gaussian(math.nextafter(1.1, 2)))


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"mystery"}',
        '{"type":"gaussian"}',
        '{"type":"gaussian","noise":1,"clip":2}',
        '{"type":"gaussian","noise":"1"}',
        '{"type":"gaussian","noise":true}',
        '{"type":"gaussian","noise":NaN}',
        '{"type":"gaussian","noise":Infinity}',
        '{"type":"gaussian","noise":1e999}',
        '{"type":"gaussian","noise":-1}',
        '{"type":"poisson","rate":1.5,"event":{"type":"gaussian","noise":1}}',
        '{"type":"repeated","times":1.5,"event":{"type":"gaussian","noise":1}}',
        '{"type":"repeated","times":-1,"event":{"type":"gaussian","noise":1}}',
        '{"type":"composed","events":{}}',
        '{"type":"composed","events":[1]}',
        '{"noise":1}',
        "[]",
        "not json",
        "[" * 100_000,
    ],
)
def test_foreign_text_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(PlanError) as caught:
        from_json(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(PlanError, match="'mystery' is unknown"):
        from_json('{"type":"mystery"}')
    with pytest.raises(PlanError, match="ZCDpEvent cannot be billed"):
        to_json(dp_event.ZCDpEvent(0.1, xi=0.5))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_senseless_parameters_are_refused_on_both_ways(bad: float) -> None:
    for build in (gaussian, laplace, lambda x: poisson_gaussian(x, 1.0, 1), lambda x: poisson_gaussian(0.1, x, 1)):
        with pytest.raises(PlanError):
            build(bad)
    with pytest.raises(PlanError):
        to_json(dp_event.GaussianDpEvent(bad))
    with pytest.raises(PlanError):
        to_json(dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(1.0), bad))
    with pytest.raises(PlanError):
        repeat_and_select(gaussian(1), 0.5, 1)
    with pytest.raises(PlanError):
        with_additive_delta(gaussian(1), bad)


def test_compose_is_flat_and_repeat_multiplies() -> None:
    a, b, none = gaussian(1), laplace(2), dp_event.NoOpDpEvent()
    assert compose([]) == none == compose([none]) == repeat(a, 0) == repeat(none, 5)
    assert compose([a]) == a == repeat(a, 1)
    assert compose([a, none, compose([b, compose([a, none])])]).events == [a, b, a]
    assert repeat(repeat(a, 3), 4) == dp_event.SelfComposedDpEvent(a, 12)


def test_additive_deltas_add_up_as_often_as_they_happen() -> None:
    one = with_additive_delta(gaussian(1), 1e-6)
    assert additive_delta(one) == 1e-6
    assert additive_delta(compose([repeat(one, 5), with_additive_delta(one, 2e-6)])) == pytest.approx(8e-6)
    assert additive_delta(repeat(one, 10**9)) == 1.0
    assert additive_delta(coin_flip(0.5, one)) == 1e-6
    assert additive_delta(repeat_and_select(one, 2, 1)) == 1.0
    assert additive_delta(dp_event.PoissonSampledDpEvent(0.1, one)) == 1.0
    assert without_additive_delta(compose([repeat(one, 5), laplace(2)])) == compose(
        [repeat(gaussian(1), 5), laplace(2)]
    )


def test_a_coin_not_yet_tossed_is_for_planning_only() -> None:
    coin = coin_flip(0.5, gaussian(1))
    assert is_planning_only(coin)
    for inside in (
        repeat(coin, 3),
        compose([gaussian(1), repeat(coin, 2)]),
        with_additive_delta(coin, 0.1),
        repeat_and_select(coin, 2, 1),
        dp_event.PoissonSampledDpEvent(0.1, coin),
    ):
        assert is_planning_only(inside)
        assert is_planning_only(from_json(to_json(inside)))
    assert not is_planning_only(compose([gaussian(1), poisson_gaussian(0.1, 1, 5)]))


def test_every_constructor_is_reachable_from_text() -> None:
    assert set(events._DECODERS) == {
        *("gaussian", "laplace", "zcdp", "poisson", "composed", "repeated", "repeat-and-select"),
        *("coin-flip", "additive-delta", "nothing", "not-private"),
    }
