// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parts that every component uses: memory sources, errors, reports of misuse, sizes, and ownership of one
/// block.
#pragma once

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/allocation_observer.hpp>
#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/borrowed_memory.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/config.hpp>
#include <tidemark/core/file_descriptor.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/memory_pressure.hpp>
#include <tidemark/core/os_memory.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/registered_memory.hpp>
#include <tidemark/core/resource_stats.hpp>
#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/core/size_histogram.hpp>
#include <tidemark/core/unique_block.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/core/upstream_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/core/virtual_memory.hpp>
