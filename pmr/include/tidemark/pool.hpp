// SPDX-License-Identifier: Apache-2.0
/// @file
/// Pools: reuse by size class, on one thread or many, or by exact size behind fences; and the monitor of memory
/// pressure.
#pragma once

#include <tidemark/pool/byte_cap.hpp>
#include <tidemark/pool/global_pool.hpp>
#include <tidemark/pool/pool.hpp>
#include <tidemark/pool/pool_options.hpp>
#include <tidemark/pool/pressure_monitor.hpp>
#include <tidemark/pool/reuse_cache.hpp>
#include <tidemark/pool/synchronized_pool.hpp>
