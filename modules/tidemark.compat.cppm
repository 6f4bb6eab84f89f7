// SPDX-License-Identifier: Apache-2.0
/// @file
/// The standard's memory resources, with exactly its interface and rules: what a program takes in place of
/// `std::pmr`'s by a `using`.
module;

#include <tidemark/compat.hpp>

export module tidemark.compat;

export namespace tidemark::compat {

using tidemark::compat::monotonic_buffer_resource;
using tidemark::compat::synchronized_pool_resource;
using tidemark::compat::unsynchronized_pool_resource;

}  // namespace tidemark::compat
