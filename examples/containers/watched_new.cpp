// SPDX-License-Identifier: Apache-2.0
#include <tidemark/telemetry/watched_new.hpp>
