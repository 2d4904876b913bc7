"""Frames of different libraries, by type."""

from lance_dagster.handlers.base import ReadRequest, TypeHandler, WriteRequest
from lance_dagster.handlers.bridge import ArrowBridge
from lance_dagster.handlers.registry import handler_for

__all__ = ["ArrowBridge", "ReadRequest", "TypeHandler", "WriteRequest", "handler_for"]
