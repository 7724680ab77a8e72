import subprocess
import sys

import layerdag


def test_all_lists_the_public_names_in_order() -> None:
    assert layerdag.__all__ == sorted(layerdag.__all__)
    assert set(layerdag.__all__) == {*layerdag._HOME, "__version__"}


def test_every_public_name_can_be_imported() -> None:
    for name in layerdag.__all__:
        assert getattr(layerdag, name) is not None


def test_import_and_reading_traces_do_not_load_torch() -> None:
    code = (
        "import sys, layerdag; layerdag.read_workload; layerdag.simulate;"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
