// SPDX-License-Identifier: Apache-2.0
// A library that takes 32 bytes of the C library's reserve of static TLS when it is loaded late.
[[gnu::tls_model("initial-exec")]] thread_local volatile char static_tls_bytes[32];

extern "C" int use_static_tls() {
  static_tls_bytes[0] = 1;
  return static_tls_bytes[0];
}
