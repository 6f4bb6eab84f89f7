# SPDX-License-Identifier: Apache-2.0
# The CMake package: libraries, headers and the *sources* of the module interfaces. Compiled interfaces are never
# installed: they fit one compiler with one set of flags, and each importer makes its own.
if(NOT TIDEMARK_INSTALL)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tidemark)
install(TARGETS tidemark_headers tidemark_cuda_headers EXPORT tidemark_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TIDEMARK_MODULES)
  install(TARGETS tidemark tidemark_cuda EXPORT tidemark_targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET CXX_MODULES DESTINATION ${CMAKE_INSTALL_LIBDIR}/tidemark/modules)
  set(export_modules CXX_MODULES_DIRECTORY modules)
endif()
if(TIDEMARK_THRUST)
  install(TARGETS tidemark_thrust_headers EXPORT tidemark_targets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  if(TIDEMARK_MODULES)
    install(TARGETS tidemark_thrust EXPORT tidemark_targets
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
      FILE_SET CXX_MODULES DESTINATION ${CMAKE_INSTALL_LIBDIR}/tidemark/modules)
  endif()
endif()
install(PROGRAMS tools/tidemark-report TYPE BIN)
install(EXPORT tidemark_targets
  NAMESPACE tidemark:: FILE tidemark-targets.cmake DESTINATION ${package_dir} ${export_modules})
configure_package_config_file(cmake/tidemark-config.cmake.in ${PROJECT_BINARY_DIR}/tidemark-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tidemark-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tidemark-config.cmake ${PROJECT_BINARY_DIR}/tidemark-config-version.cmake
  DESTINATION ${package_dir})
