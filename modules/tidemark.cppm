// SPDX-License-Identifier: Apache-2.0
/// @file
/// The whole host library: scoped memory for numerical C++.
export module tidemark;

export import tidemark.arena;
export import tidemark.compat;
export import tidemark.core;
export import tidemark.coroutine;
export import tidemark.diagnose;
export import tidemark.epoch;
export import tidemark.graph;
export import tidemark.plan;
export import tidemark.pool;
export import tidemark.process;
export import tidemark.team;
export import tidemark.telemetry;
export import tidemark.workspace;
