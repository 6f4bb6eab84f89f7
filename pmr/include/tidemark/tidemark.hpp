// SPDX-License-Identifier: Apache-2.0
/// @file
/// All of the host library, for translation units that include instead of `import tidemark;`.
#pragma once

#include <tidemark/address_space.hpp>
#include <tidemark/arena.hpp>
#include <tidemark/arena_mark.hpp>
#include <tidemark/arena_options.hpp>
#include <tidemark/arena_scope.hpp>
#include <tidemark/arena_stats.hpp>
#include <tidemark/borrowed_memory.hpp>
#include <tidemark/bucket_histogram.hpp>
#include <tidemark/byte_range.hpp>
#include <tidemark/config.hpp>
#include <tidemark/global_pool.hpp>
#include <tidemark/macros.hpp>
#include <tidemark/memory_pressure.hpp>
#include <tidemark/os_memory.hpp>
#include <tidemark/out_of_memory.hpp>
#include <tidemark/pool.hpp>
#include <tidemark/pool_options.hpp>
#include <tidemark/pool_stats.hpp>
#include <tidemark/pressure_monitor.hpp>
#include <tidemark/resource_stats.hpp>
#include <tidemark/scratch.hpp>
#include <tidemark/synchronized_pool.hpp>
#include <tidemark/trace_log.hpp>
#include <tidemark/trace_resource.hpp>
#include <tidemark/trace_slice.hpp>
#include <tidemark/units.hpp>
#include <tidemark/upstream_memory.hpp>
#include <tidemark/violation.hpp>
#include <tidemark/virtual_memory.hpp>
