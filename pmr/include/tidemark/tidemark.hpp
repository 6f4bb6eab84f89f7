// SPDX-License-Identifier: Apache-2.0
/// @file
/// The whole host library, for translation units that use `#include` instead of `import tidemark;`.
#pragma once

#include <tidemark/arena.hpp>
#include <tidemark/compat.hpp>
#include <tidemark/core.hpp>
#include <tidemark/coroutine.hpp>
#include <tidemark/diagnose.hpp>
#include <tidemark/epoch.hpp>
#include <tidemark/graph.hpp>
#include <tidemark/plan.hpp>
#include <tidemark/pool.hpp>
#include <tidemark/process.hpp>
#include <tidemark/team.hpp>
#include <tidemark/telemetry.hpp>
#include <tidemark/workspace.hpp>
