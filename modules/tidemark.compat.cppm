// SPDX-License-Identifier: Apache-2.0
/// @file
/// Classes with the names, constructors and rules of the standard's memory resources.
export module tidemark.compat;

import tidemark.detail.headers;

export namespace tidemark::compat {

using tidemark::compat::monotonic_buffer_resource;
using tidemark::compat::synchronized_pool_resource;
using tidemark::compat::unsynchronized_pool_resource;

}  // namespace tidemark::compat
