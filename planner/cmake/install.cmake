# SPDX-License-Identifier: Apache-2.0
# The CMake package tidemark-planner, which finds tidemark, and the pkg-config file of the C library.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tidemark-planner)
set(places LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set(planner_targets tidemark_planner_headers)
if(TARGET tidemark_plan_c)
  list(APPEND planner_targets tidemark_plan_c)
endif()
if(BUILD_SHARED_LIBS AND NOT DEFINED CMAKE_INSTALL_RPATH)
  set_target_properties(${planner_targets} PROPERTIES INSTALL_RPATH "$ORIGIN")
endif()
install(TARGETS ${planner_targets} EXPORT tidemark_planner_targets ${places})
install(EXPORT tidemark_planner_targets NAMESPACE tidemark:: FILE tidemark-planner-targets.cmake DESTINATION ${package_dir})
# A separate file, because a project whose compiler has no modules must not read it.
if(TARGET tidemark_planner)
  install(EXPORT tidemark_planner_module_targets NAMESPACE tidemark:: FILE tidemark-planner-module-targets.cmake
    DESTINATION ${package_dir} CXX_MODULES_DIRECTORY modules)
endif()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tidemark-planner-config.cmake.in
  ${PROJECT_BINARY_DIR}/tidemark-planner-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tidemark-planner-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tidemark-planner-config.cmake ${PROJECT_BINARY_DIR}/tidemark-planner-config-version.cmake
  DESTINATION ${package_dir})

if(TARGET tidemark_plan_c)
  # Programs in C also need the sanitizers of the library.
  set(sanitize)
  if(TIDEMARK_SANITIZE)
    set(sanitize " -fsanitize=${TIDEMARK_SANITIZE}")
    target_link_options(tidemark_plan_c INTERFACE $<INSTALL_INTERFACE:-fsanitize=${TIDEMARK_SANITIZE}>)
  endif()
  file(RELATIVE_PATH pkg_config_up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" pkg_config_up "${pkg_config_up}")
  configure_file(${CMAKE_CURRENT_LIST_DIR}/tidemark-plan.pc.in ${PROJECT_BINARY_DIR}/pkgconfig/tidemark-plan.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/pkgconfig/tidemark-plan.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
