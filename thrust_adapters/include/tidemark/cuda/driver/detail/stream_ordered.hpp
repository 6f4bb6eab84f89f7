// SPDX-License-Identifier: Apache-2.0
/// @file
/// `stream_ordered`: a resource that says at run time whether a stream orders its memory. Owns nothing.
#pragma once

#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu::detail {

/// A second base of resources whose class a cache or pool above them cannot name, such as templates over the
/// types of other libraries.
class stream_ordered {
 public:
  /// Whether what is deallocated goes to later work of that stream only.
  [[nodiscard]] virtual bool is_ordered_by(stream_handle stream) const noexcept = 0;

 protected:
  ~stream_ordered() = default;
};

}  // namespace tidemark::gpu::detail
