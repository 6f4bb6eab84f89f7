// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory whose use outlives the call that gives it back: reuse by exact size behind fences.
module;

#include <tidemark/byte_cap.hpp>

export module tidemark.epoch;

export namespace tidemark {

// Limits that users set
using tidemark::byte_cap;
using tidemark::byte_cap_from_environment;
using tidemark::parse_byte_cap;

}  // namespace tidemark
