"""Numbers of network.yml as yaml-cpp reads them."""

import pytest

from layerdag.errors import ConfigError
from layerdag.simulator.astra import read_network
from layerdag.simulator.astra._sections import Section, yaml_integer, yaml_number

KNOWN = frozenset({"roofline-enabled", "policy", "many"})
NETWORK = "topology: [ Ring ]\nnpus_count: [ {npus} ]\nbandwidth: [ {rate} ]\nlatency: [ 0 ]\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10.0),  # YAML 1.1 makes it octal, yaml-cpp does not
        ("1e3", 1000.0),
        ("4.0e2", 400.0),
        ("1e-3", 0.001),
        ("'50'", 50.0),
        ('"50.0"', 50.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("+7", 7.0),
    ],
)
def test_a_bandwidth_is_the_decimal_number_of_its_text(tmp_path, text, value):
    path = tmp_path / "network.yml"
    path.write_text(NETWORK.format(npus=4, rate=text))
    assert read_network(path).dimensions[0].bandwidth_gib == value


@pytest.mark.parametrize(
    "text", ["0x10", "5_0", "1:30", "fast", "1e", ".", "~", "true", "1,5", "' 5'", "\u0665", "nan"]
)
def test_what_yaml_cpp_cannot_convert_is_refused(text):
    with pytest.raises(ConfigError, match="is no decimal number"):
        yaml_number("bandwidth", text)


@pytest.mark.parametrize(
    ("text", "value"), [("8", 8), ("+8", 8), ("-2", -2), ("010", 8), ("0x10", 16), ("0", 0)]
)
def test_counts_follow_the_base_of_their_prefix(text, value):
    assert yaml_integer("npus_count", text) == value


@pytest.mark.parametrize("text", ["4.0", "1e3", "08", "0x", "4_0", "", "\u0664"])
def test_counts_that_are_no_integers_are_refused(text):
    with pytest.raises(ConfigError, match="is no whole number"):
        yaml_integer("npus_count", text)


@pytest.mark.parametrize(
    ("value", "told"),
    [(True, "true, which ASTRA-sim takes for 1"), (False, "false, which"), (2, "2; write 0 or 1")],
)
def test_a_flag_that_is_neither_0_nor_1_is_told(value, told):
    with pytest.raises(ConfigError, match=f"'roofline-enabled' is {told}"):
        Section({"roofline-enabled": value}, frozenset({"roofline-enabled"})).flag(
            "roofline-enabled"
        )


def test_a_word_that_is_not_known_is_told_with_those_that_are():
    section = Section({"policy": "FILO", "many": 3}, KNOWN)
    with pytest.raises(ConfigError, match="'policy' is 'FILO'; write one of LIFO, FIFO"):
        section.word("policy", None, ("LIFO", "FIFO"))
    with pytest.raises(ConfigError, match="'many' is 3; write a list of names"):
        section.texts("many")
    with pytest.raises(ConfigError, match="'policy' is 'FILO'; write a number"):
        section.number("policy")
