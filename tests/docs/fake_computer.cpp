// SPDX-License-Identifier: Apache-2.0
// Strategy: programs of pages that use a device run on the fake one, which runs what a page puts on a stream
// when the page waits for it, and refuses what a device refuses.
#include <tidemark/cuda/driver/driver.hpp>

#include "fake_device.hpp"

namespace {

struct fake_computer {
  tidemark::test::fake_device device{{.touchable = true}};

  fake_computer() { tidemark::gpu::set_default_driver(&device); }
  ~fake_computer() { tidemark::gpu::set_default_driver(nullptr); }
} computer;

}  // namespace
