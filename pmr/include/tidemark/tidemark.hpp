// SPDX-License-Identifier: Apache-2.0
/// @file
/// All of the host library, for translation units that include instead of `import tidemark;`.
#pragma once

#include <tidemark/address_space.hpp>
#include <tidemark/allocation_site.hpp>
#include <tidemark/arena.hpp>
#include <tidemark/arena_mark.hpp>
#include <tidemark/arena_options.hpp>
#include <tidemark/arena_scope.hpp>
#include <tidemark/arena_stats.hpp>
#include <tidemark/borrowed_memory.hpp>
#include <tidemark/byte_range.hpp>
#include <tidemark/config.hpp>
#include <tidemark/expect_no_upstream.hpp>
#include <tidemark/limit_resource.hpp>
#include <tidemark/live_block.hpp>
#include <tidemark/macros.hpp>
#include <tidemark/os_memory.hpp>
#include <tidemark/out_of_memory.hpp>
#include <tidemark/resource_stats.hpp>
#include <tidemark/scratch.hpp>
#include <tidemark/statistics_resource.hpp>
#include <tidemark/test_resource.hpp>
#include <tidemark/tracking_resource.hpp>
#include <tidemark/units.hpp>
#include <tidemark/upstream_memory.hpp>
#include <tidemark/violation.hpp>
#include <tidemark/virtual_memory.hpp>
