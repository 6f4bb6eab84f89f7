// SPDX-License-Identifier: Apache-2.0
/// @file
/// Coroutines whose frames come from a `std::pmr::memory_resource`.
module;

#include <tidemark/coroutine.hpp>

export module tidemark.coroutine;

export import tidemark.core;

export namespace tidemark {

using tidemark::frame_resource;
using tidemark::nothrow_pmr_promise;
using tidemark::pmr_promise;

}  // namespace tidemark
