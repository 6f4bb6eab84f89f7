// SPDX-License-Identifier: Apache-2.0
/// @file
/// `epoch`: a scope whose end reclaims the blocks allocated in it, except kept blocks; `keepable`: types that
/// `epoch::keep` accepts.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tidemark/core/detail/leads_to_memory.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/epoch/detail/block_group.hpp>
#include <tidemark/epoch/detail/storage.hpp>
#include <tidemark/epoch/epoch_resource.hpp>

namespace tidemark {
namespace detail {

/// Handles and pointers; `nullptr`, too.
template <class T>
concept keepable_itself = has_storage<T> || raw_pointer<T> || std::is_null_pointer_v<T>;
/// Contiguous ranges of trivially copyable elements. Elements that own memory have blocks elsewhere, which
/// `keep` cannot find.
template <class T>
concept keepable_range = !keepable_itself<T> && std::ranges::contiguous_range<T const> &&
                         std::is_trivially_copyable_v<std::ranges::range_value_t<T const>>;
/// Elements that refer to further blocks.
template <class T>
concept keepable_element = keepable_itself<T> || (keepable_range<T> && std::ranges::view<T>);
/// Containers without a block to keep: their allocator is `std::allocator`, or another without a state that
/// names a resource.
template <class T>
concept keeps_nothing = keepable_range<T> && !keepable_element<std::ranges::range_value_t<T const>> &&
                        requires { typename T::allocator_type; } &&
                        std::allocator_traits<typename T::allocator_type>::is_always_equal::value;

}  // namespace detail

/// Types that `epoch::keep` accepts: buffers, views, pointers, and contiguous ranges of trivially copyable
/// elements, except containers on the heap.
template <class T>
concept keepable =
    detail::keepable_itself<std::remove_cvref_t<T>> ||
    (detail::keepable_range<std::remove_cvref_t<T>> && !detail::keeps_nothing<std::remove_cvref_t<T>>);

namespace detail {

/// Calls `keep(storage const&)` or `keep(void const*)` for every block that `thing` refers to.
template <keepable T, class Keep>
void for_each_block(T const& thing, Keep const& keep) {
  if constexpr (has_storage<T>) {
    keep(thing.storage());
  } else if constexpr (keepable_itself<T>) {
    keep(const_cast<void const*>(static_cast<void const volatile*>(thing)));
  } else {
    using element = std::ranges::range_value_t<T const>;
    // An empty span may point to the end of a block, which is the start of the next block. An empty container
    // may still have storage.
    if constexpr (std::ranges::borrowed_range<T>) {
      if (std::ranges::empty(thing)) return;
    }
    // Other elements lie in the block of the range.
    if constexpr (keepable_element<element>) {
      for (auto const& each : thing) for_each_block(each, keep);
    }
    keep(static_cast<void const*>(std::to_address(std::ranges::begin(thing))));
  }
}

}  // namespace detail

/// A scope of one thread on an `epoch_resource`. The end of the scope reclaims the blocks allocated in it,
/// except kept blocks.
///
/// ```cpp
/// buffer<float> hidden, loss;
/// {
///   epoch e{memory, "step"};
///   hidden = buffer<float>{memory, 4096};
///   loss = buffer<float>{memory, 1};
///   e.keep(loss);
/// }  // here hidden is empty, and loss is as it was
/// ```
/// Epochs nest. A block kept by an inner epoch belongs to the next outer epoch, and needs another `keep` to
/// survive that epoch. A block kept by the outermost epoch becomes an ordinary block, and its owner
/// deallocates it. Epochs of other threads and other resources are independent.
///
/// Epochs on one resource end in reverse order of opening, on the thread that opened them (see `end`). The
/// resource must outlive the epoch. Opening is O(1), with at most one lock for the outermost epoch; ending is
/// O(blocks). Thread-safety: only the opening thread may use an epoch.
class [[nodiscard(TIDEMARK_NAME_SCOPE)]] epoch {
 public:
  /// Opens an epoch. @param name used in messages; must outlive the resource. @throws std::bad_alloc; no
  /// epoch is open then
  [[nodiscard(TIDEMARK_NAME_SCOPE)]] explicit epoch(epoch_resource& resource TIDEMARK_LIFETIMEBOUND,
                                                    char const* name = "epoch");
  epoch(epoch const&) = delete;
  epoch& operator=(epoch const&) = delete;
  /// Calls `end()` if the epoch is open.
  ~epoch() {
    if (is_open()) (void)end();
  }

  /// Keeps the blocks of buffers, views, pointers, and ranges of trivially copyable elements when the epoch
  /// ends. Does not own: a buffer or container must outlive the epoch. A pointer may point into a block, and
  /// a range is contiguous. Keeping a range keeps its storage, and the blocks of elements that are pointers
  /// or views. Other types do not compile, because `keep` cannot find the blocks of nodes and elements, or
  /// because they are on the heap. Ignores null, blocks of other epochs, threads and resources, and blocks
  /// kept already.
  /// @return number of newly kept blocks. O(1) for the start of a block, O(blocks of the epoch) for an
  /// address inside a block.
  template <class... Things>
  std::size_t keep(Things const&... things) noexcept {
    // A variable gives a short error: compilers explain a failed concept in ten lines.
    constexpr bool all_are_keepable = (keepable<Things> && ...);
    constexpr bool is_on_heap = (detail::keeps_nothing<Things> || ...);
    static_assert(
        !is_on_heap,
        "epoch::keep finds no block of a container on the heap: write std::pmr::vector<T> v{&memory}");
    static_assert(all_are_keepable || is_on_heap,
                  "epoch::keep takes buffers, views, pointers, and contiguous ranges of trivially copyable "
                  "elements: keep the parts of anything else one by one");
    std::size_t kept = 0;
    if constexpr (all_are_keepable) {
      const auto count = [&](auto const& where) { kept += keep_block(where) ? 1 : 0; };
      (detail::for_each_block(things, count), ...);
    }
    return kept;
  }

  /// Ends the epoch now. O(blocks). A second call does nothing; level 2 reports it. Reports a violation if an
  /// inner epoch is open; the epoch then ends with the last epoch inside it. Reports a violation on another
  /// thread; the epoch then stays open until the resource is destroyed.
  epoch_summary end() noexcept;

  /// True until the epoch is ended.
  [[nodiscard]] bool is_open() const noexcept { return depth_ != 0; }
  /// 1 for the outermost epoch of this thread on this resource, 2 for the next inner epoch; 0 once ended.
  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }
  /// The name given to the constructor.
  [[nodiscard]] char const* name() const noexcept { return name_; }
  /// The resource of the epoch's blocks.
  [[nodiscard]] epoch_resource& resource() const noexcept { return resource_; }

 private:
  bool keep_block(detail::storage const& storage) noexcept;
  bool keep_block(void const* address) noexcept;

  epoch_resource& resource_;
  detail::block_group& group_;
  char const* name_;
  std::size_t depth_;  // of this epoch's frame in the group; 0 once ended
};

namespace detail {

template <class Body>
using body_result = decltype(call_in(std::declval<epoch&>(), std::declval<Body>()));

/// Ranges, optionals and smart pointers whose elements are handles.
template <class T>
concept holds_handles = (!keepable<T> && std::ranges::range<T const> && requires(T const& thing) {
                          requires has_storage<std::ranges::range_value_t<T>>;
                        }) || (points_to_one<T> && requires(T const& thing) {
                          requires has_storage<std::remove_cvref_t<decltype(*thing)>>;
                        });

/// Keeps a thing, or each part of a tuple.
/// @tparam Body void: each part must be keepable. Otherwise the thing is the result of this body, and parts
/// are kept as far as `epoch::keep` accepts them. A body that takes the epoch can keep other parts itself.
template <class Body, class Thing>
void keep_parts(epoch& e, Thing const& thing) {
  if constexpr (tuple_like<Thing>) {
    std::apply([&](auto const&... parts) { (keep_parts<Body>(e, parts), ...); }, thing);
  } else if constexpr (std::is_void_v<Body> || keepable<Thing>) {
    e.keep(thing);
  } else {
    constexpr bool is_kept_by_body = !holds_handles<Thing> || std::invocable<Body, epoch&>;
    static_assert(is_kept_by_body,
                  "with_epoch does not keep the buffers in a range, an optional or a smart pointer: let the "
                  "body take the epoch, and keep them one by one");
  }
}

}  // namespace detail

/// Runs `body()` or `body(epoch&)` in an epoch and returns the result. `keep` is called with the result, or
/// without arguments if the result is void. The epoch keeps the thing that `keep` returns, or each part of a
/// returned tuple. Without `keep`, the epoch keeps the result, or the parts of a tuple, as far as
/// `epoch::keep` accepts them.
///
/// ```cpp
/// auto [loss, gradients] = with_epoch(memory, "step", [&] { return train(batch); },
///                                     [](auto& result) { return std::tie(result.loss); });
/// ```
/// @throws whatever `body` or `keep` throws; all blocks of the epoch are reclaimed then, except blocks that
/// `body` kept. Thread-safety and complexity: as `epoch`.
template <class Body, class... Keep>
  requires(!std::convertible_to<Body, char const*> && sizeof...(Keep) <= 1)
detail::body_result<Body> with_epoch(epoch_resource& resource, char const* name, Body&& body,
                                     Keep&&... keep) {
  epoch e{resource, name};
  if constexpr (std::is_void_v<detail::body_result<Body>>) {
    detail::call_in(e, std::forward<Body>(body));
    (detail::keep_parts<void>(e, std::invoke(std::forward<Keep>(keep))), ...);
  } else {
    detail::body_result<Body> result = detail::call_in(e, std::forward<Body>(body));
    (detail::keep_parts<void>(e, std::invoke(std::forward<Keep>(keep), result)), ...);
    if constexpr (sizeof...(Keep) == 0) detail::keep_parts<Body>(e, result);
    return result;
  }
}

/// Like the overload above, with the name "epoch".
template <class Body, class... Keep>
  requires(!std::convertible_to<Body, char const*> && sizeof...(Keep) <= 1)
detail::body_result<Body> with_epoch(epoch_resource& resource, Body&& body, Keep&&... keep) {
  return with_epoch(resource, "epoch", std::forward<Body>(body), std::forward<Keep>(keep)...);
}

}  // namespace tidemark
