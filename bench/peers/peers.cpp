// SPDX-License-Identifier: Apache-2.0
#include "peers.hpp"

#include <gnu/libc-version.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "loaded_malloc.hpp"

#if defined(TIDEMARK_PEER_LLVM)
#include <llvm/Config/llvm-config.h>
#endif
#if defined(TIDEMARK_PEER_PROTOBUF)
#include <google/protobuf/stubs/common.h>
#endif
#if defined(TIDEMARK_PEER_BOOST)
#include <boost/container/pmr/unsynchronized_pool_resource.hpp>
#include <boost/version.hpp>
#endif
#if defined(TIDEMARK_PEER_FOONATHAN)
#include <foonathan/memory/memory_pool_collection.hpp>
#endif

namespace tidemark::bench {
namespace {

using made_resource = std::shared_ptr<std::pmr::memory_resource>;

/// A singleton that is never deleted.
made_resource one_of_all(std::pmr::memory_resource* resource) {
  return {resource, [](auto*) {}};
}

template <class Calls>
made_resource make_loaded();

#if defined(TIDEMARK_PEER_BOOST)
/// Boost's resources have the form of std's, but another base class.
class boost_pool_resource final : public std::pmr::memory_resource {
 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override { return pool_.allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    pool_.deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  boost::container::pmr::unsynchronized_pool_resource pool_;
};
#endif

#if defined(TIDEMARK_PEER_FOONATHAN)
/// Pools of powers of two. They have a largest size, and larger blocks come from the heap.
class foonathan_pool_resource final : public std::pmr::memory_resource {
 private:
  static constexpr std::size_t node_max = 4096, block_bytes = 1 << 20;

  // A node is aligned to its size.
  static bool is_for_pools(std::size_t bytes, std::size_t align) {
    return bytes <= node_max && is_of_malloc(align);
  }
  static std::size_t node_bytes(std::size_t bytes, std::size_t align) {
    return std::max({bytes, align, std::size_t{1}});
  }

  void* do_allocate(std::size_t bytes, std::size_t align) override {
    return is_for_pools(bytes, align) ? pools_.allocate_node(node_bytes(bytes, align))
                                      : heap_->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    is_for_pools(bytes, align) ? pools_.deallocate_node(block, node_bytes(bytes, align))
                               : heap_->deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  std::pmr::memory_resource* heap_ = std::pmr::new_delete_resource();
  foonathan::memory::memory_pool_collection<foonathan::memory::node_pool, foonathan::memory::log2_buckets>
      pools_{node_max, block_bytes};
};
#endif

struct found_peers {
  found_peers() {
    all.push_back({"malloc", true, std::string{"glibc "} + gnu_get_libc_version(),
                   [] { return one_of_all(std::pmr::new_delete_resource()); }});
    load<mimalloc_calls>("mimalloc", "libmimalloc.so.2");
    load<mimalloc_3_calls>("mimalloc3", mimalloc_3_calls::file());
    load<jemalloc_calls>("jemalloc", "libjemalloc.so.2");
    load<tcmalloc_calls>("tcmalloc", "libtcmalloc_minimal.so.4");
    const std::string libstdcxx = "libstdc++ " + std::to_string(__GLIBCXX__);
    all.push_back({"std_pool", false, libstdcxx,
                   [] { return made_resource{std::make_shared<std::pmr::unsynchronized_pool_resource>()}; }});
    all.push_back({"std_synchronized_pool", true, libstdcxx,
                   [] { return made_resource{std::make_shared<std::pmr::synchronized_pool_resource>()}; }});
#if defined(TIDEMARK_PEER_BOOST)
    all.push_back({"boost_pool", false, boost_version(),
                   [] { return made_resource{std::make_shared<boost_pool_resource>()}; }});
#else
    missing.emplace_back("Boost.Container (libboost-container-dev) is not installed");
#endif
#if defined(TIDEMARK_PEER_FOONATHAN)
    all.push_back({"foonathan_pool", false, foonathan_version(),
                   [] { return made_resource{std::make_shared<foonathan_pool_resource>()}; }});
#else
    missing.emplace_back("foonathan/memory (libfoonathan-memory-dev) is not installed");
#endif
#if !defined(TIDEMARK_PEER_LLVM)
    missing.emplace_back("llvm::BumpPtrAllocator (llvm-22-dev) is not installed");
#endif
#if !defined(TIDEMARK_PEER_PROTOBUF)
    missing.emplace_back("protobuf's Arena (libprotobuf-dev) is not installed");
#endif
  }

  /// The calls of one kind, found at the first use.
  template <class Calls>
  static loaded_malloc<Calls>*& instance() {
    static loaded_malloc<Calls>* made = nullptr;
    return made;
  }

  template <class Calls>
  void load(char const* name, char const* file) {
    const shared_library library{file};
    const Calls calls{library};
    if (!library.is_there() || !calls.are_there()) {
      missing.push_back(std::string{name} + " cannot be used: " +
                        (library.is_there() ? std::string{file} + " lacks a function" : library.why_not()));
      return;
    }
    static loaded_malloc<Calls> made{calls};
    instance<Calls>() = &made;
    all.push_back({name, true, calls.version_text(), [] { return one_of_all(instance<Calls>()); }});
  }

#if defined(TIDEMARK_PEER_BOOST)
  static std::string boost_version() {
    return std::to_string(BOOST_VERSION / 100'000) + '.' + std::to_string(BOOST_VERSION / 100 % 1000);
  }
#endif
#if defined(TIDEMARK_PEER_FOONATHAN)
  static std::string foonathan_version() {
    return std::to_string(FOONATHAN_MEMORY_VERSION_MAJOR) + '.' +
           std::to_string(FOONATHAN_MEMORY_VERSION_MINOR) + '.' +
           std::to_string(FOONATHAN_MEMORY_VERSION_PATCH);
  }
#endif

  std::vector<peer> all;
  std::vector<std::string> missing;
};

found_peers const& found() {
  static const found_peers once;
  return once;
}

}  // namespace

std::vector<peer> const& peers() { return found().all; }

peer const* find_peer(std::string_view name) {
  const auto place = std::ranges::find(peers(), name, &peer::name);
  return place == peers().end() ? nullptr : &*place;
}

std::vector<version> versions() {
  std::vector<version> all;
  for (peer const& one : peers()) all.push_back({one.name, one.version});
#if defined(TIDEMARK_PEER_LLVM)
  all.push_back({"llvm_bump", LLVM_VERSION_STRING});
#endif
#if defined(TIDEMARK_PEER_PROTOBUF)
  all.push_back({"protobuf_arena", google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION)});
#endif
  all.push_back({"compiler", __VERSION__});
  return all;
}

std::vector<std::string> const& left_out() { return found().missing; }

}  // namespace tidemark::bench
