import os
import signal
import threading

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


def test_other_threads_catch_nothing():
    found = []

    def look() -> None:
        before = signal.getsignal(signal.SIGTERM)
        with listening() as request:
            found.append((signal.getsignal(signal.SIGTERM) is before, request.signal_name))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [(True, None)]
