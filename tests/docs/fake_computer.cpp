// SPDX-License-Identifier: Apache-2.0
// Strategy: programs of pages that use a device run on the fake device, which runs a page's stream work when
// the page waits for it, and rejects the calls that a device rejects.
#include <tidemark/cuda/driver/driver.hpp>

#include "fake_device.hpp"

namespace {

struct fake_computer {
  tidemark::test::fake_device device{{.touchable = true}};

  fake_computer() { tidemark::gpu::set_default_driver(&device); }
  ~fake_computer() { tidemark::gpu::set_default_driver(nullptr); }
} computer;

}  // namespace
