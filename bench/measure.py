"""Timing side by side: candidates take turns in ABBA order, so that drifts of clocks and temperature fall on all alike."""
import dataclasses
import functools
import math
import sys

import torch

SAMPLE_MS = 1.0       # work of one sample: long against the resolution of events, short against drifts
WARM_UP_MS = 300.0    # of all candidates in turns before the first sample: clocks settle at what the power limit allows
LIMIT = 200           # launches of one sample
SHORT_MS = SAMPLE_MS  # what may be shorter is timed in a graph: how long the host takes to launch would decide how many share one
PER_GRAPH = 20         # launches of such a graph
CHOOSING = ((1, 1.10), (4, 1.03), (9, 1.0))   # among settings: rounds, and how far behind the leader one may be to run again


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


def _rough(launch):
    """A rough time in ms, to know how many launches a sample takes."""
    launch()
    rough = min(_elapsed(launch) for _ in range(2))
    if rough > SHORT_MS:
        return rough
    replay = captured([launch], PER_GRAPH)
    replay()
    return _elapsed(replay) / PER_GRAPH


def _prepared(candidates):
    """name -> (what replays a sample, its launches)."""
    graphs = {}
    for name, launches in candidates.items():
        for launch in launches:
            launch()
        torch.cuda.synchronize()
        count = max(len(launches), min(LIMIT, math.ceil(SAMPLE_MS / max(_rough(launches[0]), 1e-3))))
        graphs[name] = (captured(launches, count), count)
    return graphs


def _warm_up(graphs, milliseconds):
    spent = 0.0
    while spent < milliseconds or spent == 0.0:
        spent += _elapsed(lambda: [replay() for replay, _ in graphs.values()])


def _interleaved(graphs, rounds):
    times = {name: [] for name in graphs}
    order = list(graphs)
    for number in range(rounds):
        there = order if number % 2 == 0 else order[::-1]
        sums = dict.fromkeys(order, 0.0)
        for name in there + there[::-1]:   # A B B A
            replay, count = graphs[name]
            sums[name] += _elapsed(replay) / count
        for name in order:
            times[name].append(sums[name] / 2)
    return times


def compare(candidates, rounds=25, warm_up_ms=WARM_UP_MS):
    """candidates: name -> launches (the same work on one or several sets of buffers). Times of one launch in ms:
    name -> list, by round, so that times of one round belong together."""
    graphs = _prepared(candidates)
    _warm_up(graphs, warm_up_ms)
    return _interleaved(graphs, rounds)


def _relative(times):
    """Medians of what each took of its rounds' means, in which drifts cancel."""
    means = [sum(of_round) / len(of_round) for of_round in zip(*times.values())]
    return {name: spread([t / mean for t, mean in zip(samples, means)]).median for name, samples in times.items()}


def best_of(launches, warm_up_ms=100.0):
    """The index of the fastest. All take turns from the first sample on (one after the other, the first would have the highest
    clocks); who is not far behind runs again, in more rounds. What is reported later are other samples."""
    graphs = _prepared({index: [launch] for index, launch in enumerate(launches)})
    _warm_up(graphs, warm_up_ms)
    for rounds, behind in CHOOSING:
        took = _relative(_interleaved(graphs, rounds))
        limit = behind * min(took.values())
        graphs = {index: graph for index, graph in graphs.items() if took[index] <= limit}
        if len(graphs) == 1:
            break
    return min(graphs, key=took.get)
