# SPDX-License-Identifier: Apache-2.0
# The CMake package: libraries, headers and the *sources* of the module interfaces. Compiled interfaces are never
# installed: they fit one compiler with one set of flags, and each importer makes its own.
if(NOT TIDEMARK_INSTALL)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tidemark)
set(places LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS tidemark_headers tidemark_cuda_headers EXPORT tidemark_targets ${places}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TIDEMARK_THRUST)
  install(TARGETS tidemark_thrust_headers EXPORT tidemark_targets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
if(TIDEMARK_MPI)
  install(TARGETS tidemark_mpi_headers EXPORT tidemark_targets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
install(EXPORT tidemark_targets NAMESPACE tidemark:: FILE tidemark-targets.cmake DESTINATION ${package_dir})
# A file of their own, because a project whose compiler has no modules must not read it.
if(TIDEMARK_MODULES)
  set(module_targets tidemark tidemark_cuda)
  if(TIDEMARK_THRUST)
    list(APPEND module_targets tidemark_thrust)
  endif()
  if(TIDEMARK_MPI)
    list(APPEND module_targets tidemark_mpi)
  endif()
  install(TARGETS ${module_targets} EXPORT tidemark_module_targets ${places}
    FILE_SET CXX_MODULES DESTINATION ${CMAKE_INSTALL_LIBDIR}/tidemark/modules)
  install(EXPORT tidemark_module_targets NAMESPACE tidemark:: FILE tidemark-module-targets.cmake
    DESTINATION ${package_dir} CXX_MODULES_DIRECTORY modules)
endif()
# What is installed finds the libraries where they are installed along with it.
if(BUILD_SHARED_LIBS AND CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF" AND NOT DEFINED CMAKE_INSTALL_RPATH)
  set_target_properties(tidemark_cuda_headers PROPERTIES INSTALL_RPATH "$ORIGIN")
endif()
install(PROGRAMS tools/tidemark-report TYPE BIN)
configure_package_config_file(cmake/tidemark-config.cmake.in ${PROJECT_BINARY_DIR}/tidemark-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tidemark-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tidemark-config.cmake ${PROJECT_BINARY_DIR}/tidemark-config-version.cmake
  cmake/tidemark-importers.cmake DESTINATION ${package_dir})
