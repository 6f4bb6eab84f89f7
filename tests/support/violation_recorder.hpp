// SPDX-License-Identifier: Apache-2.0
// Records violations instead of ending the program.
#pragma once

#include "report_recorder.hpp"

namespace tidemark::test {

using violation_recorder = report_recorder<violation, &set_violation_handler>;

}  // namespace tidemark::test
