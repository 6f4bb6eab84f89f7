// SPDX-License-Identifier: Apache-2.0
// A program that makes workspaces by its argument, and prints their settings and warnings.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <tidemark/tidemark.hpp>

namespace {

using namespace tidemark;

void show(char const* what, workspace const& ws) {
  std::printf("%s: ", what);
  if (ws.options().cache_ways == unlimited_cache_ways) std::printf("unlimited ways");
  else std::printf("%u ways", ws.options().cache_ways);
  std::printf(", pooling %s\n", ws.pooling_enabled() ? "on" : "off");
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view what = count == 2 ? arguments[1] : "";
  set_warning_handler([](warning const& seen) {
    std::printf("%s%s: %s\n",
                seen.kind == warning_kind::refused_setting ? "" : "of another kind: ", seen.resource,
                seen.message);
  });
  if (what == "built") {  // what was compiled in
    std::printf("built: %d ways, pooling %s\n", TIDEMARK_WORKSPACE_CACHE_WAYS,
                TIDEMARK_WORKSPACE_POOLING != 0 ? "on" : "off");
    return 0;
  }
  show("default", workspace{});
  if (what == "twice") {
    setenv("TIDEMARK_WORKSPACE_CACHE_WAYS", "9", 1);  // too late
    show("again", workspace{});
  } else if (what == "set") {
    workspace_options options = default_workspace_options();
    options.cache_ways = 7;
    options.pooling = false;
    set_default_workspace_options(options);
    show("set", workspace{});
    show("of an upstream", workspace{std::pmr::new_delete_resource()});
    show("of the thread", this_thread_workspace());
    show("constructed", workspace{{.cache_ways = 5, .pooling = true}});
    set_default_workspace_options({.cache_ways = 3, .pooling = false});
    show("set again", workspace{});
  } else if (what == "refused") {
    show("constructed with 0", workspace{{.cache_ways = 0, .name = "a"}});
    show("constructed with 17", workspace{{.cache_ways = 17, .name = "b"}});
    set_default_workspace_options({.cache_ways = 18, .name = "c"});
    show("set to 18", workspace{});
    show("constructed without limit", workspace{{.cache_ways = unlimited_cache_ways}});
  } else if (what != "default") {
    return std::fprintf(stderr, "show: there is no case\n"), 2;
  }
  return 0;
}
