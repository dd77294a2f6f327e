"""Timing side by side: candidates take turns in ABBA order, so that drifts of clocks and temperature fall on all alike."""
import dataclasses
import functools
import math
import sys

import torch

SAMPLE_MS = 1.0       # work of one sample: long beside the resolution of events, short beside drifts
WARM_UP_MS = 300.0    # of all candidates in turns before the first sample: clocks settle at what the power limit allows
LIMIT = 200           # launches of one sample
SHORT_MS = 0.1        # shorter launches are chosen among in graphs, or the host's gaps would decide
TOGETHER = 20         # launches of such a graph
CHOOSING_MS = 30.0    # spent on one setting while choosing


@dataclasses.dataclass
class Spread:
    """The median of samples with its 95 % confidence interval (order statistics of the binomial distribution)."""
    median: float
    low: float
    high: float


def spread(samples):
    ordered = sorted(samples)
    n = len(ordered)
    half = 1.96 * math.sqrt(n) / 2
    low, high = max(0, math.floor(n / 2 - half)), min(n - 1, math.ceil(n / 2 + half))
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return Spread(middle, ordered[low], ordered[high])


@functools.cache
def stream():
    """All work is sent to this one stream, and captured on it: autograd runs the backward pass where the forward pass ran."""
    return torch.cuda.Stream()


def _elapsed(work):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def captured(launches, count):
    """What replays a graph of `count` launches, which takes the launch gaps of the host out of the measurement. `launches`
    are the same work on different buffers, taken in turn."""
    def run():
        for i in range(count):
            launches[i % len(launches)]()

    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=stream()):
            run()
        return graph.replay
    except RuntimeError as error:   # what cannot be captured is launched one by one
        print(f"note: no graph: {str(error).splitlines()[0]}", file=sys.stderr)
        torch.cuda.synchronize()
        return run


def _median(work, repeats):
    return sorted(_elapsed(work) for _ in range(repeats))[repeats // 2]


def quick(launch, repeats=7):
    """A rough time in ms, to choose among settings."""
    launch()
    first = _elapsed(launch)
    rough = _median(launch, max(2, min(repeats, int(CHOOSING_MS / max(first, 1e-3)))))
    if rough > SHORT_MS:
        return rough
    replay = captured([launch], TOGETHER)
    replay()
    return _median(replay, repeats) / TOGETHER


def _warm_up(replays, milliseconds):
    spent = 0.0
    while spent < milliseconds or spent == 0.0:
        spent += _elapsed(lambda: [replay() for replay in replays])


def compare(candidates, rounds=25, warm_up_ms=WARM_UP_MS):
    """candidates: name -> launches (the same work on one or several sets of buffers). Times of one launch in ms:
    name -> list, by round, so that times of one round belong together."""
    graphs = {}
    for name, launches in candidates.items():
        for launch in launches:
            launch()
        torch.cuda.synchronize()
        count = max(len(launches), min(LIMIT, math.ceil(SAMPLE_MS / max(quick(launches[0]), 1e-3))))
        graphs[name] = (captured(launches, count), count)
    _warm_up([replay for replay, _ in graphs.values()], warm_up_ms)
    times = {name: [] for name in candidates}
    order = list(candidates)
    for number in range(rounds):
        there = order if number % 2 == 0 else order[::-1]
        sums = dict.fromkeys(order, 0.0)
        for name in there + there[::-1]:   # A B B A
            replay, count = graphs[name]
            sums[name] += _elapsed(replay) / count
        for name in order:
            times[name].append(sums[name] / 2)
    return times


def best_of(launches, finalists=3, rounds=5, warm_up_ms=50.0):
    """The index of the fastest. The few that look fastest alone run once more in turns, since rough times are noisy."""
    rough = {index: quick(launch) for index, launch in enumerate(launches)}
    leaders = sorted(rough, key=rough.get)[:finalists]
    leaders = [index for index in leaders if rough[index] < 1.05 * rough[leaders[0]]]
    if len(leaders) == 1:
        return leaders[0]
    times = compare({index: [launches[index]] for index in leaders}, rounds, warm_up_ms)
    return min(leaders, key=lambda index: spread(times[index]).median)
