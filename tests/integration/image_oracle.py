"""The program image_probe as a Python object: our readers and transforms beside nibabel, Pillow, PyTorch and MONAI."""

import json
import os
import subprocess

import numpy as np

PROBE = os.environ.get("TRAINYARD_IMAGE_PROBE")


class Probe:
    def __init__(self, folder):
        self.out, self.values = folder / "out.f32", folder / "in.f32"
        self.process = subprocess.Popen([PROBE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(60) == 0

    def ask(self, op, values=None, **request):
        if values is not None:
            np.ascontiguousarray(values, np.float32).tofile(self.values)
            request |= {"values": str(self.values), "shape": values.shape}
        request |= {"op": op, "out": str(self.out)}
        self.process.stdin.write(json.dumps(request, default=str) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the reader ended: {self.process.wait(60)}, at {request}"
        return json.loads(line)

    def values_of(self, op, **request):
        """The answer, and its values."""
        answer = self.ask(op, **request)
        assert "shape" in answer, answer
        return answer, np.fromfile(self.out, np.float32).reshape(answer["shape"])
