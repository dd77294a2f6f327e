"""Convolutions: images with their channels last, filters [R, S, C, N], against cuDNN (torch.nn.functional.conv2d, channels_last)."""
import torch
from torch.nn import functional

from table import Own, Problem, bench, poisoned, random

RIVALS = ("cudnn",)
# 3 x 3 with a border of 1: rows of 28, 56, 128 pixels by 64, 128, 256 channels
SQUARES = [(n, w, w, c, c) for n, w in ((64, 28), (32, 56), (8, 128)) for c in (64, 128, 256)]


@bench("convolution", "TFLOP/s", SQUARES, RIVALS)
def convolution(b, h, w, c, n):
    """bf16, 3 x 3, stride 1: images, height, width, channels, filters"""
    x, f, y = random(b, h, w, c), random(3, 3, c, n), poisoned(b, h, w, n)
    nchw, filters = x.permute(0, 3, 1, 2), f.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    torch.backends.cudnn.benchmark = True   # the fastest of its algorithms
    want = functional.conv2d(nchw.float(), filters.float(), padding=1).permute(0, 2, 3, 1)
    return Problem(work=2 * b * h * w * c * n * 9, out=y, want=want,
                   ours=[Own("convolution", [x, f, y, 1, 1, 1], R=3, S=3, STRIDE=1, PAD=1, DIL=1)],
                   peers={"cudnn": lambda: functional.conv2d(nchw, filters, padding=1).permute(0, 2, 3, 1)})
