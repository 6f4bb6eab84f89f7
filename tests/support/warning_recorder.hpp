// SPDX-License-Identifier: Apache-2.0
// Records warnings instead of printing them.
#pragma once

#include "report_recorder.hpp"

namespace tidemark::test {

using warning_recorder = report_recorder<warning, &set_warning_handler>;

}  // namespace tidemark::test
