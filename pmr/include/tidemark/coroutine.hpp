// SPDX-License-Identifier: Apache-2.0
/// @file
/// Coroutines whose frames come from a `std::pmr::memory_resource`.
#pragma once

#include <tidemark/coroutine/frame_resource.hpp>
#include <tidemark/coroutine/pmr_promise.hpp>
