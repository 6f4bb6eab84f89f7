// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena::scope` with the arenas that it is opened on. The class is in basic_arena_scope.hpp, which arena.hpp
/// includes.
#pragma once

#include <tidemark/arena/arena.hpp>
