// SPDX-License-Identifier: Apache-2.0
/// @file
/// Coroutines whose frames come from a `std::pmr::memory_resource`.
export module tidemark.coroutine;

export import tidemark.core;
import tidemark.detail.headers;

export namespace tidemark {

using tidemark::frame_resource;
using tidemark::pmr_promise;

}  // namespace tidemark
