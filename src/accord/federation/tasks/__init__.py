"""The tasks of worker processes. Each kind has its own file; a registry finds them."""

from accord.federation.tasks.base import Task, make_task, perform, tasks

__all__ = ["Task", "make_task", "perform", "tasks"]
