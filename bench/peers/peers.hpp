// SPDX-License-Identifier: Apache-2.0
// The allocators of others that ours are measured beside, each as a memory resource. What is not installed is
// left out, and `left_out()` says so. Those that are compiled in, and used by their own types, are named by
// macros: TIDEMARK_PEER_LLVM, TIDEMARK_PEER_PROTOBUF, TIDEMARK_PEER_BOOST, TIDEMARK_PEER_FOONATHAN.
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
  bool shared;          ///< threads may use one at once
  std::string version;  ///< of its library: "2.0.9"
  /// A new one, or what there is one of in a process. It allocates blocks by one virtual call, as ours
  /// are.
  std::shared_ptr<std::pmr::memory_resource> (*make)();
};

/// The installed allocators: "malloc", which is the C library's through operator new, "mimalloc", "mimalloc3", "jemalloc",
/// "tcmalloc", "std_pool", "std_synchronized_pool", "boost_pool" and "foonathan_pool".
[[nodiscard]] std::vector<peer> const& peers();

/// Null if it is not there.
[[nodiscard]] peer const* find_peer(std::string_view name);

/// Versions of the libraries that are there, also of those that serve in their own ways: name and version.
struct version {
  std::string of, is;
};
[[nodiscard]] std::vector<version> versions();

/// A sentence for each that is not there.
[[nodiscard]] std::vector<std::string> const& left_out();

}  // namespace tidemark::bench
