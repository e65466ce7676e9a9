"""What importing the calibrators loads."""

import subprocess
import sys


def test_calibrators_load_no_torch():
    code = (
        "import sys, linkcal.calibrators as c\n"
        "c.make_calibrator('in-n-out-plus').fit([[0.0], [1.0], [2.0], [3.0]] * 5, [0, 1, 0, 1] * 5)\n"
        "print('torch' in sys.modules, 'torch_geometric' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
