# SPDX-License-Identifier: Apache-2.0
"""Runs one work of the topic numpy in its own process: works.py WORK ALLOCATOR SECONDS. Prints a JSON object.

All allocators run the same code. `tidemark` is the handler of tidemark_numpy; the others are loaded before
malloc. A work is a function that makes its inputs and returns a step. The step returns a number that depends
on all of its results."""
import json
import resource
import sys
import time

import numpy

MiB = 1 << 20
CAP = 512 * MiB
CAPS = {"sizes_capped/60": 32 * MiB}  # caps of works that must reach them


def _random(*shape):
    return numpy.random.default_rng(24).random(shape)


def expression(megabytes):
    """a * b + c * a - b, elementwise."""
    a, b, c = _random(3, megabytes * MiB // 8)
    return lambda: float((a * b + c * a - b)[-1])


def fft_filter(megabytes):
    """A low-pass filter of a real signal, by its spectrum."""
    signal = _random(megabytes * MiB // 8)
    mask = numpy.linspace(1, 0, signal.size // 2 + 1) ** 4
    return lambda: float(numpy.fft.irfft(numpy.fft.rfft(signal) * mask)[-1])


def kmeans(points):
    """Steps of Lloyd's algorithm: 16 coordinates, 32 centres."""
    x = _random(points, 16)
    square = (x * x).sum(axis=1)[:, None]
    centres = x[:32].copy()

    def step():
        distances = square - 2 * (x @ centres.T) + (centres * centres).sum(axis=1)
        nearest = distances.argmin(axis=1)
        counts = numpy.bincount(nearest, minlength=32)
        sums = numpy.stack([numpy.bincount(nearest, weights=x[:, i], minlength=32) for i in range(16)], axis=1)
        return float((sums / counts[:, None]).sum())

    return step


def pde(side):
    """A step of Burgers' equation in two dimensions, with differences of slices."""
    u, v = _random(2, side, side)

    def step():
        inner = (slice(1, -1), slice(1, -1))
        new = []
        for w in (u, v):
            by_x, by_y = (w[1:-1, 2:] - w[1:-1, :-2]) / 2, (w[2:, 1:-1] - w[:-2, 1:-1]) / 2
            laplacian = w[1:-1, 2:] + w[1:-1, :-2] + w[2:, 1:-1] + w[:-2, 1:-1] - 4 * w[inner]
            new.append(w[inner] + 0.1 * (0.05 * laplacian - u[inner] * by_x - v[inner] * by_y))
        return float(new[0][-1, -1] + new[1][-1, -1])

    return step


def sizes(count):
    """Arrays of 1 to 16 MB, each of another size."""
    lengths = numpy.random.default_rng(1).integers(MiB // 8, 2 * MiB, count).tolist()

    def step():
        total = 0.0
        for length in lengths:
            ones = numpy.ones(length)
            total += float((ones * 2)[-1])
        return total

    return step


def growing(times):
    """An array that grows by concatenation."""
    def step():
        array = numpy.empty(0)
        for _ in range(times):
            array = numpy.concatenate([array, numpy.ones(50_000)])
        return float(array[-1])

    return step


def resizing(megabytes):
    """An array that is resized to twice its size again and again."""
    def step():
        array = numpy.ones(8192)
        while array.nbytes < megabytes * MiB:
            array.resize(2 * array.size, refcheck=False)
        return float(array[-1])

    return step


def zeros(megabytes):
    """An array of zeros, to which a constant is added."""
    def step():
        array = numpy.zeros(megabytes * MiB // 8)
        array += 1.5
        return float(array[-1])

    return step


def sparse_zeros(megabytes):
    """A table of zeros, of which one element is written."""
    def step():
        array = numpy.zeros(megabytes * MiB // 8)
        array[-1] = 1
        return float(array[-1])

    return step


def small(length):
    """Expressions of small arrays, a thousand of them."""
    a, b, c = _random(3, length)

    def step():
        for _ in range(1000):
            result = a * b + c * a - b
        return float(result[-1])

    return step


def many(count):
    """Arrays of 100 kB that are alive together."""
    def step():
        return float(sum(array[-1] for array in [numpy.ones(12_500) for _ in range(count)]))

    return step


WORKS = {"expression/1MB": (expression, 1), "expression/4MB": (expression, 4), "expression/16MB": (expression, 16),
         "expression/64MB": (expression, 64), "fft_filter/8MB": (fft_filter, 8), "kmeans/100000": (kmeans, 100_000),
         "pde/1024": (pde, 1024), "zeros/64MB": (zeros, 64), "sparse_zeros/64MB": (sparse_zeros, 64),
         "resizing/64MB": (resizing, 64), "sizes/60": (sizes, 60), "sizes_capped/60": (sizes, 60),
         "growing/60": (growing, 60), "small/8": (small, 8), "small/1000": (small, 1000), "many/2000": (many, 2000)}


def main():
    work, allocator, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    if allocator == "tidemark":
        import tidemark_numpy
        tidemark_numpy.install(max_cached_bytes=CAPS.get(work, CAP))
    make, size = WORKS[work]
    step = make(size)
    least = 3 if seconds > 0 else 1
    results = {step() for _ in range(least)}  # warm
    steps, begin = 0, time.process_time()
    while steps < least or time.process_time() - begin < seconds:
        results.add(step())
        steps += 1
    spent = time.process_time() - begin
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"results": sorted(results), "steps": steps, "ns": 1e9 * spent / steps, "peak_mb": usage.ru_maxrss / 1024,
                      "faults": usage.ru_minflt}))


if __name__ == "__main__":
    main()
