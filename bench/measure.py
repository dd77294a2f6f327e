"""Timing side by side: candidates take turns in ABBA order, so that drifts of clocks and temperature fall on all alike."""
import dataclasses
import math

import torch

SAMPLE_MS = 1.0       # work of one sample: long beside the resolution of events, short beside drifts
LIMIT = 200           # launches of one sample


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


def _elapsed(work):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def captured(launches, count):
    """A graph of `count` launches, which takes the launch gaps of the host out of the measurement. `launches` are the same
    work on different buffers, taken in turn."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            launches[i % len(launches)]()
    return graph


def quick(launch, repeats=7):
    """A rough time in ms, to choose among settings. Short launches are timed in a graph, or the host's gaps would decide."""
    SHORT_MS, TOGETHER = 0.1, 20
    launch()
    rough = sorted(_elapsed(launch) for _ in range(repeats))[repeats // 2]
    if rough > SHORT_MS:
        return rough
    graph = captured([launch], TOGETHER)
    graph.replay()
    return sorted(_elapsed(graph.replay) / TOGETHER for _ in range(repeats))[repeats // 2]


def compare(candidates, rounds=30):
    """candidates: name -> launches (the same work on one or several sets of buffers). Times of one launch in ms:
    name -> list, by round, so that times of one round belong together."""
    graphs = {}
    for name, launches in candidates.items():
        for launch in launches:
            launch()
        torch.cuda.synchronize()
        count = max(len(launches), min(LIMIT, math.ceil(SAMPLE_MS / max(quick(launches[0]), 1e-3))))
        graphs[name] = (captured(launches, count), count)
    for graph, _ in graphs.values():   # warm-up: clocks, caches, the graphs' upload
        for _ in range(5):
            graph.replay()
    torch.cuda.synchronize()
    times = {name: [] for name in candidates}
    order = list(candidates)
    for number in range(rounds):
        there = order if number % 2 == 0 else order[::-1]
        sums = dict.fromkeys(order, 0.0)
        for name in there + there[::-1]:   # A B B A
            graph, count = graphs[name]
            sums[name] += _elapsed(graph.replay) / count
        for name in order:
            times[name].append(sums[name] / 2)
    return times
