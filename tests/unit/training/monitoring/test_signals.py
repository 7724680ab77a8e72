import os
import signal

import pytest

from layerdag.training.monitoring import listening


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_noted_and_handlers_are_put_back(number: signal.Signals):
    before = signal.getsignal(number)
    with listening() as request:
        os.kill(os.getpid(), number)
        assert request.signal_name == number.name
    assert signal.getsignal(number) is before


def test_a_second_signal_breaks_off():
    with listening():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
