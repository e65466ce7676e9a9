"""Forked children that are killed with SIGKILL, at a random operation on a folder or after a random time."""

import itertools
import os
import signal
import sys
import threading

#: Kills of each command; more by the environment.
KILLS = int(os.environ.get("LINKCAL_KILLS", "6"))
_EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link"}


def before_operations(folder, action):
    """Call `action` right before each operation on a file of the folder."""

    def hook(event, arguments):
        if event in _EVENTS and str(folder) in str(arguments[0]):
            action()

    sys.addaudithook(hook)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_operation(folder, number):
    counted = itertools.count(1)
    before_operations(folder, lambda: next(counted) == number and die())


def die_after(seconds):
    timer = threading.Timer(seconds, die)
    timer.daemon = True
    timer.start()


def start(work, prepare=None, *arguments):
    """Fork a child that does `work`, whose result is its exit code; gives its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        if prepare is not None:
            prepare(*arguments)
        code = work()
    finally:
        os._exit(code)


def outcome(child):
    """Exit code of a child, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
