// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/file_descriptor.hpp>

#include <unistd.h>

namespace tidemark {

// Ignores errors: the number is free even then.
file_descriptor::~file_descriptor() {
  if (number_ >= 0) (void)::close(number_);
}

}  // namespace tidemark
