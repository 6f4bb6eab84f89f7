// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/depot.hpp>

namespace tidemark::detail {

void depot::put_in_pieces(std::size_t index, block_chain chain, std::size_t piece_blocks) noexcept {
  while (chain.blocks > piece_blocks) {
    free_block* last = chain.first;
    for (std::size_t i = 1; i < piece_blocks; ++i) last = next_of(last);
    free_block* const rest = next_of(last);
    link(last, nullptr);
    put(index, {chain.first, piece_blocks});
    chain = {rest, chain.blocks - piece_blocks};
  }
  put(index, chain);
}

}  // namespace tidemark::detail
