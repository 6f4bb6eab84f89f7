// SPDX-License-Identifier: Apache-2.0
// The measured peer allocators, each as a memory resource. Peers that are not installed are omitted, and
// `left_out()` lists them. Peers used by their own types are announced by macros: TIDEMARK_PEER_LLVM,
// TIDEMARK_PEER_PROTOBUF, TIDEMARK_PEER_BOOST, TIDEMARK_PEER_FOONATHAN.
#pragma once

#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark::bench {

/// An allocator that serves blocks of any size and takes them back in any order.
struct peer {
  std::string name;     ///< as in the names of benchmarks: "mimalloc"
  bool shared;          ///< true if threads may use it concurrently
  std::string version;  ///< of its library: "2.0.9"
  /// Returns a new resource, or the single one of the process. It allocates blocks by one virtual call, like
  /// tidemark's resources.
  std::shared_ptr<std::pmr::memory_resource> (*make)();
};

/// Returns the installed allocators: "malloc" (the C library's through operator new), "mimalloc",
/// "mimalloc3", "jemalloc", "tcmalloc", "std_pool", "std_synchronized_pool", "boost_pool" and
/// "foonathan_pool".
[[nodiscard]] std::vector<peer> const& peers();

/// Returns null if the peer is not installed.
[[nodiscard]] peer const* find_peer(std::string_view name);

/// Returns names and versions of the available libraries, also of those that do not serve as resources.
struct version {
  std::string of, is;
};
[[nodiscard]] std::vector<version> versions();

/// Returns a sentence for each missing peer.
[[nodiscard]] std::vector<std::string> const& left_out();

}  // namespace tidemark::bench
