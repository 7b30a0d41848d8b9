"""Answers to the exercises of lesson 02: wrong ones that must be rejected, right ones written differently."""

import numpy as np

from labkit.lesson.exercises.l02_measuring_honestly import is_real


def ignore_the_queue(work, now, synchronize):
    for _ in range(10):
        work()
    synchronize()
    seconds = []
    for _ in range(50):
        begin = now()
        work()
        seconds.append(now() - begin)
    return float(np.median(seconds))


def skip_the_warm_up(work, now, synchronize):
    seconds = []
    for _ in range(5):
        begin = now()
        work()
        synchronize()
        seconds.append(now() - begin)
    return float(np.median(seconds))


def take_the_mean(work, now, synchronize):
    for _ in range(10):
        work()
    synchronize()
    begin = now()
    for _ in range(50):
        work()
    synchronize()
    return (now() - begin) / 50


def time_once(work, now, synchronize):
    work()
    synchronize()
    begin = now()
    work()
    synchronize()
    return now() - begin


def start_before_the_warm_up_is_done(work, now, synchronize):
    for _ in range(10):
        work()
    begin = now()  # the queue still holds ten calls
    work()
    synchronize()
    return now() - begin


def compare_medians(ratios, null_ratios):
    middle = np.median(ratios)
    return "faster" if middle > 1 else "slower" if middle < 1 else "not distinguishable"


def compare_means(ratios, null_ratios):
    middle, floor = np.mean(ratios), abs(np.mean(null_ratios) - 1)
    return "faster" if middle > 1 + floor else "slower" if middle < 1 - floor else "not distinguishable"


def ask_for_a_tenth(ratios, null_ratios):
    middle = np.median(ratios)
    return "faster" if middle > 1.15 else "slower" if middle < 0.85 else "not distinguishable"


def want_every_pair(ratios, null_ratios):
    return "faster" if min(ratios) > 1 else "slower" if max(ratios) < 1 else "not distinguishable"


def turn_it_around(ratios, null_ratios):
    return {"faster": "slower", "slower": "faster"}.get(is_real(ratios, null_ratios), "not distinguishable")


WRONG = {
    "time-one-call": {
        "does not wait for the queue": ignore_the_queue,
        "does not warm up": skip_the_warm_up,
        "takes the mean": take_the_mean,
        "times once": time_once,
        "starts while the queue is full": start_before_the_warm_up_is_done,
    },
    "is-real": {
        "believes any median above 1": compare_medians,
        "takes means, which one spike moves": compare_means,
        "asks for a fixed amount": ask_for_a_tenth,
        "wants every single pair to agree": want_every_pair,
        "turns the ratio around": turn_it_around,
    },
}

RIGHT = {
    "time-one-call": {},
    "is-real": {},
}
