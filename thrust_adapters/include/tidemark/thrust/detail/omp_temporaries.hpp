// SPDX-License-Identifier: Apache-2.0
/// @file
/// `omp_temporaries`: an allocator for the temporaries of Thrust's OMP system. Owns nothing.
#pragma once

#include <tidemark/thrust/detail/backend.hpp>

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_OMP

#include <cstddef>
#include <new>

#include <omp.h>

#include <tidemark/thrust/thrust_allocator.hpp>

namespace tidemark::detail {
inline namespace TIDEMARK_THRUST_SYSTEM {

/// A `thrust_allocator` that takes memory from the heap in a parallel region that began after its
/// construction. Thrust sorts in such a region: several threads allocate temporaries at once. The resource
/// may be for one thread, and an exception would end the program.
// Thrust frees the temporaries of a region in the same region.
template <class R>
class omp_temporaries : public thrust_allocator<std::byte, R> {
  using outside = thrust_allocator<std::byte, R>;

 public:
  using typename outside::pointer;

  explicit omp_temporaries(outside const& allocator) noexcept : outside{allocator} {}

  [[nodiscard]] pointer allocate(std::size_t n) {
    if (!is_inside()) return outside::allocate(n);
    return pointer{static_cast<std::byte*>(::operator new(n, alignment))};
  }
  void deallocate(pointer block, std::size_t n) noexcept {
    if (is_inside()) ::operator delete(block.get(), n, alignment);
    else outside::deallocate(block, n);
  }

 private:
  static constexpr std::align_val_t alignment{thrust_resource<R>::default_alignment};

  // Also true in regions of one thread, because an exception cannot leave them either.
  [[nodiscard]] bool is_inside() const noexcept { return ::omp_get_level() > level_; }

  int level_ = ::omp_get_level();
};

}  // namespace TIDEMARK_THRUST_SYSTEM
}  // namespace tidemark::detail

#endif
