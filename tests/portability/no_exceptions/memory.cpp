// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <tidemark/pool/pool.hpp>

namespace {

tidemark::pool& blocks() {
  static tidemark::pool memory;
  return memory;
}

}  // namespace

std::pmr::memory_resource& program_memory() { return blocks(); }

unsigned long long program_blocks() { return blocks().stats().used_blocks; }
