// SPDX-License-Identifier: Apache-2.0
// A target that has a precompiled header needs a source.
