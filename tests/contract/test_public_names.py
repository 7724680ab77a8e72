import importlib
import subprocess
import sys
from types import ModuleType

import pytest
from rooms import ROOMS


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_resolves_twice_and_is_no_module(room: str) -> None:
    package = importlib.import_module(room)
    for name in getattr(package, "__all__", ()):
        first, second = getattr(package, name), getattr(package, name)
        assert first is second
        assert not isinstance(second, ModuleType), f"{room}.{name} is shadowed by a module"


def test_public_names_of_the_package_survive_each_others_import() -> None:
    code = (
        "import layerdag\n"
        "for _ in range(2):\n"
        "    for name in layerdag.__all__:\n"
        "        value = getattr(layerdag, name)\n"
        "        assert callable(value) or name == '__version__', name\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_import_and_reading_traces_do_not_load_torch() -> None:
    code = (
        "import sys, layerdag; layerdag.read_workload; layerdag.simulate;"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
