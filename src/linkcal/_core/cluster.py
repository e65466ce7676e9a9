"""Ray: the cluster of ``$RAY_ADDRESS``, or one on this machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from linkcal.exceptions import WorkerDiedError, extra_needed

#: Where jobs run: processes of this machine, or a Ray cluster.
ENGINES = ("local", "ray")

WORKER_DIED = (
    "a worker process must live until its job is done, got one that was killed, perhaps for want of memory; "
    "what was finished stays: run again, with fewer jobs if it was memory"
)


@contextmanager
def ray_cluster(num_cpus: int | None = None) -> Iterator[Any]:
    """Yield the module ``ray``, connected for a block: as it is already, else to a cluster.

    One that is started on this machine offers `num_cpus` cores, by default all. ``WorkerDiedError`` if a
    worker process is killed, by the system or by somebody.
    """
    with extra_needed("the engine ray"):
        import ray
        from ray.exceptions import ActorDiedError, NodeDiedError, OutOfMemoryError, WorkerCrashedError
    own = not ray.is_initialized()
    if own:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if not os.environ.get("RAY_ADDRESS"):
            options |= {"num_cpus": num_cpus, "include_dashboard": False}
        ray.init(**options)
    try:
        yield ray
    except (ActorDiedError, NodeDiedError, OutOfMemoryError, WorkerCrashedError) as error:
        raise WorkerDiedError(WORKER_DIED) from error
    finally:
        if own:
            ray.shutdown()
