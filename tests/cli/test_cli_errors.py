"""Mistakes on the command line: one sentence that says what, where and what now; exit code 2, or 1 for the machine."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.spaces.nb201 import OPS
from tests.command import CHEAP, epochzero, refusal

SCORE = ("score", "--arch", CHEAP, "--batch-size", 2)
SEARCH = ("search", "--proxy", "params", "--budget", 3, "--batch-size", 2)


# Names


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("list", "proxys"), "nothing called 'proxys' to list. Did you mean 'proxies'?"),
        ((*SCORE, "--space", "nb210"), "No space is called 'nb210'. Did you mean 'nb201'?"),
        ((*SCORE, "--proxy", "naswt"), "No proxy is called 'naswt'. Did you mean 'naswot'? Known: "),
        ((*SCORE, "--proxy", "snip,naswt"), "Did you mean 'naswot'?"),
        ((*SCORE, "--init", "kaimng"), "No initialisation is called 'kaimng'. Did you mean 'kaiming'?"),
        ((*SCORE, "--data", "pinc"), "No data are called 'pinc'. Did you mean 'pink'?"),
        ((*SCORE, "--device", "gpu"), "The device 'gpu' cannot be used here"),
        ((*SCORE, "--device", "meta"), "The device 'meta' cannot be used here"),
        ((*SCORE, "--device", "privateuseone"), "The device 'privateuseone' cannot be used here"),
        ((*SCORE, "--device", "cuda:77"), "The device 'cuda:77' cannot be used here"),
        ((*SCORE, "--proxy", "zico(batchs=2)"), "no setting 'batchs'. Did you mean 'batches'?"),
        ((*SCORE, "--proxy", "snip(x=2)"), "The proxy snip has no setting 'x'. It has none."),
        ((*SEARCH, "--space", "nb21"), "No space is called 'nb21'. Did you mean 'nb201'?"),
        ((*SEARCH, "--method", "evolutoin"), "No search is called 'evolutoin'. Did you mean 'evolution'?"),
        ((*SEARCH, "--option", "popultion=9"), "has no option 'popultion'. Did you mean 'population'?"),
    ],
)
def test_a_wrong_name_gets_a_hint(arguments: tuple[object, ...], says: str) -> None:
    assert says in refusal(*arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("serch",), "No such command 'serch'. Did you mean 'search'"),
        (("search", "--sed", "1"), "No such option: --sed (Possible options: --seed"),
        (("bench", "--target", "x"), "Missing option '--table'"),
        ((*SCORE, "--seed", "-1"), "'--seed': Input should be greater than or equal to 0"),
        ((*SCORE, "--seed", "one"), "'--seed': Input should be a valid integer"),
        ((*SCORE, "--batch-size", "0"), "'--batch-size': Input should be greater than or equal to 1"),
        ((*SCORE, "--batch-size", "10000000000"), "'--batch-size': Input should be less than"),
        ((*SCORE, "--classes", "0"), "'--classes': Input should be greater than or equal to 1"),
        ((*SEARCH, "--budget", "1.5"), "'--budget': Input should be a valid integer"),
        ((*SEARCH, "extra"), "unexpected extra argument"),
    ],
)
def test_options_that_cannot_be_read(arguments: tuple[object, ...], says: str) -> None:
    assert says in refusal(*arguments)


# Values


@pytest.mark.parametrize(
    ("proxy", "says"),
    [
        ("", "No proxy is named"),
        (" , ", "No proxy is named"),
        ("zico(", "'zico(' is not a proxy"),
        ("zico)", "'zico)' is not a proxy"),
        ("zico(batches=x)", "zico takes int for 'batches' (default 2), not 'x'"),
        ("zico(batches=1)", "needs at least 2, not 1"),
        ("zico(batches=99999999999)", "zico takes at most 1,000,000 for 'batches'"),
        ("zico(batches)", "'batches' in 'zico(batches)' is not a setting: write key=value"),
        ("dextr(variant=papr)", "variant=paper or variant=reference"),
        ("curvature(points=0)", "at least one point"),
        ("curvature(q=nan)", "positive radius"),
        ("[/red]", "'[/red]' is not a proxy"),
        ("naswot\nsnip", "is not a proxy"),
    ],
)
def test_a_malformed_proxy(proxy: str, says: str) -> None:
    assert says in refusal(*SCORE, "--proxy", proxy)


@pytest.mark.parametrize("shape", ["", "3,x,3", "3,,3", "0,3,3", "-3,3,3", "3;3;3", "3,200000,3", "1e3,3,3"])
def test_a_malformed_shape(shape: str) -> None:
    assert f"whole numbers such as 3,224,224, not {shape!r}" in refusal(*SCORE, "--input-shape", shape)


@pytest.mark.parametrize("shape", ["3,30,30", "3,2,2"])
def test_a_shape_that_the_space_does_not_take(shape: str) -> None:
    assert "multiples of 4" in refusal(*SCORE, "--input-shape", shape)


def test_an_architecture_or_a_module_and_not_both() -> None:
    either = "Give either --arch (with --space) or --module file.py:factory."
    assert refusal("score") == either
    assert refusal(*SCORE, "--module", "net.py:make") == either


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--budget", 0), "a budget of at least 1 evaluation, not 0"),
        (("--budget", -3), "a budget of at least 1 evaluation, not -3"),
        (("--max-params", 0), "--max-params takes a number from 1 to 1e18, not '0'"),
        (("--max-params", "-1M"), "--max-params takes a number such as 1500000, 1.5e6 or 1.5M, not '-1M'"),
        (("--max-params", "lots"), "--max-params takes a number such as"),
        (("--max-flops", "1e999"), "--max-flops takes a number from 1 to 1e18"),
        (("--max-flops", "nan"), "--max-flops takes a number such as"),
        (("--max-params", "73k"), "No nb201 network has at most 73,000 parameters: the smallest has 73,306."),
        (("--max-flops", "1M"), "at most 1,000,000 multiply-accumulates: the smallest has 7,783,040."),
        (("--proxy", "params,flosp"), "No proxy is called 'flosp'. Did you mean 'flops'?"),
        (("--option", "population"), "--option takes key=value, not 'population'"),
        (("--option", "=5"), "--option takes key=value, not '=5'"),
        (("--option", "population=many"), "takes int for 'population' (default 50), not 'many'"),
        (("--option", "tournament=2.5"), "takes int for 'tournament' (default 10), not 2.5"),
        (("--option", "population=5"), "A tournament of 10 cannot be drawn from a population of 5"),
        (("--option", f"population={10**30}"), "cannot be drawn from a population of 1000000000000000000000000000000"),
        (("--option", "batch=0"), "at least 1 architecture at a time, not 0"),
    ],
)
def test_a_search_that_cannot_be_done(options: tuple[object, ...], says: str) -> None:
    assert says in refusal(*SEARCH, *options)


# Architectures

valid = st.tuples(*[st.sampled_from(OPS)] * 6).map(spaces["nb201"].text)
pieces = st.sampled_from(
    [*OPS, "|", "+", "~", "0", "1", "2", "|+|", "~~", "[bold]", "[/]", "\\", "٣", "\n", "\x00", " "]
)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A valid string with a few pieces cut out and others put in."""
    text = draw(valid)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(pieces | st.text(max_size=3)) + text[place + draw(st.integers(0, 8)) :]
    return str(text)


strings = damaged() | st.text() | st.lists(pieces, max_size=60).map("".join)


@settings(max_examples=300, deadline=None)
@given(strings)
def test_any_string_is_a_cell_or_refused_in_one_sentence(text: str) -> None:
    space = spaces["nb201"]
    try:
        cell = space.parse(text)
    except UserError as error:
        assert len(str(error).splitlines()) == 1
        assert len(str(error)) < 1000
    else:
        assert space.text(cell) == text.strip()


@pytest.mark.parametrize(
    "text", ["|" * 10**6, "+" * 10**6, "~0|" * 10**5, "|" + "9" * 10**6 + "~0|++", "|a~" + "1" * 5000]
)
def test_a_huge_string_is_refused_at_once(text: str) -> None:
    with pytest.raises(UserError) as caught:
        spaces["nb201"].parse(text)
    assert len(str(caught.value)) < 1000


@settings(max_examples=60, deadline=None)
@given(strings.filter(lambda text: not text.startswith("-")))
def test_any_string_on_the_command_line(text: str) -> None:
    try:
        spaces["nb201"].parse(text)
    except UserError:
        assert refusal("score", "--arch", text, "--proxy", "params")
    else:
        assert epochzero("score", "--arch", text, "--proxy", "params").code == 0
