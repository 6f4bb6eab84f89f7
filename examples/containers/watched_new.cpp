// SPDX-License-Identifier: Apache-2.0
#include <tidemark/diagnose/watched_new.hpp>
