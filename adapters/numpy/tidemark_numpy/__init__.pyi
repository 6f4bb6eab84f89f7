# SPDX-License-Identifier: Apache-2.0
import os
import tracemalloc
import types
from typing import NamedTuple, SupportsIndex

__all__ = ["install", "leak", "leaks", "pool", "pool_stats", "stats", "trace"]

class pool_stats(NamedTuple):
    allocations: int
    deallocations: int
    hits: int
    misses: int
    used_blocks: int
    used_bytes: int
    cached_bytes: int
    held_bytes: int

class pool:
    def __init__(self, *, max_cached_bytes: SupportsIndex = ..., huge_pages: bool = ...) -> None: ...
    def __enter__(self) -> pool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: types.TracebackType | None
    ) -> None: ...
    def stats(self) -> pool_stats: ...
    def trim(self) -> None: ...

def install(*, max_cached_bytes: SupportsIndex = ..., huge_pages: bool = ...) -> pool: ...
def stats() -> pool_stats: ...

class trace:
    def __init__(
        self, csv: str | bytes | os.PathLike[str] | None = ..., *, chrome: str | bytes | os.PathLike[str] | None = ...
    ) -> None: ...
    def __enter__(self) -> trace: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: types.TracebackType | None
    ) -> None: ...
    def close(self) -> None: ...

class leak(NamedTuple):
    filename: str
    line: int
    arrays: int
    bytes: int

def leaks(since: tracemalloc.Snapshot | None = ...) -> list[leak]: ...
