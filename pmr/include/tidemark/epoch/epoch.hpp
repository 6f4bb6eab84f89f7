// SPDX-License-Identifier: Apache-2.0
/// @file
/// `epoch`: reclaims at its end what was allocated since its opening, except what is kept; `keepable`: what
/// can be kept.
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
#include <tidemark/diagnose/detail/named_range.hpp>
#include <tidemark/epoch/detail/block_group.hpp>
#include <tidemark/epoch/detail/storage.hpp>
#include <tidemark/epoch/epoch_resource.hpp>

namespace tidemark {
namespace detail {

/// Handles and pointers.
template <class T>
concept keepable_itself = has_storage<T> || raw_pointer<T> || std::is_null_pointer_v<T>;
/// Ranges in one block. Elements that own memory have other blocks, which nothing here would find.
template <class T>
concept keepable_range = !keepable_itself<T> && std::ranges::contiguous_range<T const> &&
                         std::is_trivially_copyable_v<std::ranges::range_value_t<T const>>;

}  // namespace detail

/// What `epoch::keep` takes: buffers and their views, pointers, and contiguous ranges of trivially copyable
/// elements.
template <class T>
concept keepable =
    detail::keepable_itself<std::remove_cvref_t<T>> || detail::keepable_range<std::remove_cvref_t<T>>;

namespace detail {

/// Calls `keep(storage const&)` or `keep(void const*)` for every block that `thing` leads to.
template <keepable T, class Keep>
void for_each_block(T const& thing, Keep const& keep) {
  if constexpr (has_storage<T>) {
    keep(thing.storage());
  } else if constexpr (keepable_itself<T>) {
    keep(const_cast<void const*>(static_cast<void const volatile*>(thing)));
  } else {
    using element = std::ranges::range_value_t<T const>;
    // An empty span may point to the end of a block, which is the start of the next. An empty container may
    // have storage.
    if constexpr (std::ranges::borrowed_range<T>) {
      if (std::ranges::empty(thing)) return;
    }
    // Views and pointers lead further; other elements lie in the range's own block.
    if constexpr (keepable_itself<element> || (keepable_range<element> && std::ranges::view<element>)) {
      for (auto const& each : thing) for_each_block(each, keep);
    }
    keep(static_cast<void const*>(std::to_address(std::ranges::begin(thing))));
  }
}

}  // namespace detail

/// Opens an epoch of this thread on an `epoch_resource`, and ends it when it is destroyed.
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
/// Epochs nest. What an inner one keeps becomes the outer one's, and dies with that unless it is kept again;
/// what the outermost keeps is from then on an ordinary block, to be deallocated by its owner. Epochs of
/// other threads and of other resources are independent.
///
/// Epochs on one resource end in the reverse order of their opening. Ending an outer one first is reported as
/// a violation; it then ends with the last one inside it. Ending one on another thread is reported as well;
/// it then stays open until the resource is destroyed.
///
/// The resource must outlive its use. Opening is O(1), at most a lock for the outermost only; the end is
/// O(blocks). Used by the thread that made it only.
class [[nodiscard]] epoch {
 public:
  /// Opens an epoch. @param name in messages; must outlive the resource. @throws std::bad_alloc; no epoch is
  /// opened.
  [[nodiscard]] explicit epoch(epoch_resource& resource TIDEMARK_LIFETIMEBOUND, char const* name = "epoch");
  epoch(epoch const&) = delete;
  epoch& operator=(epoch const&) = delete;
  /// `end()`, if that was not called.
  ~epoch() {
    if (is_open()) (void)end();
  }

  /// Keeps the blocks of `things` when the epoch ends: buffers, views of them, pointers to or into a block,
  /// and contiguous ranges of trivially copyable elements, such as spans and vectors (their storage, and the
  /// blocks of elements that are pointers or views). Anything else does not compile, because nodes and
  /// elements of containers may own blocks that are not found. Does nothing for null, for blocks of other
  /// epochs, threads and resources, and for blocks that are kept already.
  /// @return how many blocks are newly kept. O(1) for the start of a block, O(blocks of the epoch) for an
  /// address inside one.
  template <class... Things>
  std::size_t keep(Things const&... things) noexcept {
    // A variable, because compilers explain a concept in ten lines.
    constexpr bool all_are_keepable = (keepable<Things> && ...);
    static_assert(all_are_keepable,
                  "epoch::keep takes buffers, views, pointers, and contiguous ranges of trivially copyable "
                  "elements: keep the parts of anything else one by one");
    std::size_t kept = 0;
    if constexpr (all_are_keepable) {
      const auto count = [&](auto const& where) { kept += keep_block(where) ? 1 : 0; };
      (detail::for_each_block(things, count), ...);
    }
    return kept;
  }

  /// Ends the epoch now. Calling it again does nothing; level 2 reports that. O(blocks).
  epoch_summary end() noexcept;

  /// Whether it has not been ended.
  [[nodiscard]] bool is_open() const noexcept { return depth_ != 0; }
  /// 1 for the outermost epoch of this thread on this resource, 2 for the next; 0 if it was ended.
  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }
  /// The name that it was made with.
  [[nodiscard]] char const* name() const noexcept { return name_; }
  /// The resource whose blocks it ends.
  [[nodiscard]] epoch_resource& resource() const noexcept { return resource_; }

 private:
  bool keep_block(detail::storage const& storage) noexcept;
  bool keep_block(void const* address) noexcept;

  epoch_resource& resource_;
  detail::block_group& group_;
  char const* name_;
  std::size_t depth_;  // of the group's frame, which frames inside it do not change; 0: ended
  [[no_unique_address]] detail::named_range range_;
};

namespace detail {

template <class Body>
  requires(std::invocable<Body, epoch&> || std::invocable<Body>)
decltype(auto) call_body(epoch& e, Body&& body) {
  if constexpr (std::invocable<Body, epoch&>) return std::invoke(std::forward<Body>(body), e);
  else return std::invoke(std::forward<Body>(body));
}

template <class Body>
using body_result = decltype(call_body(std::declval<epoch&>(), std::declval<Body>()));

/// Keeps a thing, or each part of a tuple.
template <class Thing>
void keep_each(epoch& e, Thing const& thing) {
  if constexpr (tuple_like<Thing>) {
    std::apply([&](auto const&... parts) { (keep_each(e, parts), ...); }, thing);
  } else {
    e.keep(thing);
  }
}

/// Ranges, optionals and smart pointers of handles.
template <class T>
concept holds_handles = (!keepable<T> && std::ranges::range<T const> && requires(T const& thing) {
                          requires has_storage<std::ranges::range_value_t<T>>;
                        }) || (points_to_one<T> && requires(T const& thing) {
                          requires has_storage<std::remove_cvref_t<decltype(*thing)>>;
                        });

/// Keeps what can be kept of the result of a body.
/// @tparam Body may have kept the rest itself if it was called with the epoch
template <class Body, class Result>
void keep_result(epoch& e, Result const& result) {
  if constexpr (tuple_like<Result>) {
    std::apply([&](auto const&... parts) { (keep_result<Body>(e, parts), ...); }, result);
  } else if constexpr (keepable<Result>) {
    e.keep(result);
  } else {
    constexpr bool is_kept_by_body = !holds_handles<Result> || std::invocable<Body, epoch&>;
    static_assert(is_kept_by_body,
                  "with_epoch does not keep the buffers in a range, an optional or a smart pointer: let the "
                  "body take the epoch, and keep them one by one");
  }
}

}  // namespace detail

/// Runs `body`, as `body()` or `body(epoch&)`, in an epoch and returns its result. Keeps what `keep` returns,
/// called with the result (with nothing, if that is void): what `epoch::keep` takes, or a tuple of such.
/// Without `keep`, keeps the result itself, or the parts of a tuple, as far as `epoch::keep` takes them.
///
/// ```cpp
/// auto [loss, gradients] = with_epoch(memory, "step", [&] { return train(batch); },
///                                     [](auto& result) { return std::tie(result.loss); });
/// ```
/// @throws what `body` or `keep` throws; everything that the epoch tracked, but for what `body` itself has
/// kept, is reclaimed then. Thread-safety and complexity: as `epoch`.
template <class Body, class... Keep>
  requires(!std::convertible_to<Body, char const*> && sizeof...(Keep) <= 1)
detail::body_result<Body> with_epoch(epoch_resource& resource, char const* name, Body&& body,
                                     Keep&&... keep) {
  epoch e{resource, name};
  if constexpr (std::is_void_v<detail::body_result<Body>>) {
    detail::call_body(e, std::forward<Body>(body));
    (detail::keep_each(e, std::invoke(std::forward<Keep>(keep))), ...);
  } else {
    detail::body_result<Body> result = detail::call_body(e, std::forward<Body>(body));
    (detail::keep_each(e, std::invoke(std::forward<Keep>(keep), result)), ...);
    if constexpr (sizeof...(Keep) == 0) detail::keep_result<Body>(e, result);
    return result;
  }
}

/// The same with the name "epoch".
template <class Body, class... Keep>
  requires(!std::convertible_to<Body, char const*> && sizeof...(Keep) <= 1)
detail::body_result<Body> with_epoch(epoch_resource& resource, Body&& body, Keep&&... keep) {
  return with_epoch(resource, "epoch", std::forward<Body>(body), std::forward<Keep>(keep)...);
}

}  // namespace tidemark
