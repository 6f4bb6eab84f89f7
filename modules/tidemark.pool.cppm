// SPDX-License-Identifier: Apache-2.0
/// @file
/// Pools: reuse by size class, on one thread or many, or by exact size behind fences; and the monitor of memory
/// pressure.
export module tidemark.pool;

export import tidemark.core;
import tidemark.detail.headers;

export namespace tidemark {

// Pools
using tidemark::global_pool;
using tidemark::pool;
using tidemark::pool_options;
using tidemark::pool_stats;
using tidemark::pooled_alloc;
using tidemark::pooled_free;
using tidemark::synchronized_pool;

// Reuse by exact size
using tidemark::reuse_cache;
using tidemark::reuse_cache_options;
using tidemark::reuse_cache_stats;

// Limits
using tidemark::byte_cap_from_environment;
using tidemark::mib_cap_from_environment;
using tidemark::parse_byte_cap;
using tidemark::parse_mib_cap;

// Memory pressure
using tidemark::pressure_monitor;
using tidemark::pressure_monitor_options;

}  // namespace tidemark
