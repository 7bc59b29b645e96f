"""What workers do. One file per kind of task; the registry finds them."""

from accord.federation.tasks.base import Task, make_task, perform, tasks

__all__ = ["Task", "make_task", "perform", "tasks"]
