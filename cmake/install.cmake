# SPDX-License-Identifier: Apache-2.0
# The CMake package: libraries, headers and the *sources* of the module interfaces. Compiled interfaces are
# not installed: they fit one compiler with one set of flags, so each importer compiles its own.
if(NOT TIDEMARK_INSTALL)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Component of the Debian development package. Components of neither package are for Python.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME tidemark_dev)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tidemark)
set(places LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
set(libraries tidemark_headers)
if(TIDEMARK_DEVICE)
  list(APPEND libraries tidemark_cuda_headers)
endif()
install(TARGETS ${libraries} EXPORT tidemark_targets ${places}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TIDEMARK_THRUST)
  install(TARGETS tidemark_thrust_headers EXPORT tidemark_targets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
if(TIDEMARK_MPI)
  install(TARGETS tidemark_mpi_headers EXPORT tidemark_targets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
# A program needs the sanitizers of its library. The other libraries link this one.
set(sanitize)
if(TIDEMARK_SANITIZE)
  set(sanitize " -fsanitize=${TIDEMARK_SANITIZE}")
  target_compile_options(tidemark_headers INTERFACE
    $<INSTALL_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TIDEMARK_SANITIZE}>>)
  target_link_options(tidemark_headers INTERFACE $<INSTALL_INTERFACE:-fsanitize=${TIDEMARK_SANITIZE}>)
endif()
install(EXPORT tidemark_targets NAMESPACE tidemark:: FILE tidemark-targets.cmake DESTINATION ${package_dir})
# A separate file, because a project whose compiler has no modules must not read it.
if(TIDEMARK_MODULES)
  set(module_targets tidemark)
  if(TIDEMARK_DEVICE)
    list(APPEND module_targets tidemark_cuda)
  endif()
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
# Lets installed libraries find the libraries installed beside them.
if(TIDEMARK_DEVICE AND BUILD_SHARED_LIBS AND CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF" AND NOT DEFINED CMAKE_INSTALL_RPATH)
  set_target_properties(tidemark_cuda_headers PROPERTIES INSTALL_RPATH "$ORIGIN")
endif()
if(TIDEMARK_TOOLS)
  install(PROGRAMS tools/tidemark-report TYPE BIN COMPONENT tidemark_tools)
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(PROJECT_IS_TOP_LEVEL)  # only for Debian packages: a full installation has the licence above
  install(FILES packaging/debian/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libtidemark-dev EXCLUDE_FROM_ALL)
  install(FILES packaging/debian/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/tidemark-tools COMPONENT tidemark_tools
    EXCLUDE_FROM_ALL)
endif()
configure_package_config_file(cmake/tidemark-config.cmake.in ${PROJECT_BINARY_DIR}/tidemark-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tidemark-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tidemark-config.cmake ${PROJECT_BINARY_DIR}/tidemark-config-version.cmake
  cmake/tidemark-importers.cmake DESTINATION ${package_dir})

# pkg-config files for builds without CMake. The folders are relative to the file. A static library lists its
# dependencies in Libs, because no shared library brings them along.
file(RELATIVE_PATH pkg_config_up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" pkg_config_up "${pkg_config_up}")
# Installs the file `name` for the library `library`, which requires the packages `requires`. `needs` has
# linker options for the library's dependencies. `variables` has lines that both may use.
function(tidemark_install_pkg_config name library description requires needs variables cflags)
  set(libs "-L\${libdir} -l${library}${sanitize}")
  set(private "${needs}")
  if(NOT BUILD_SHARED_LIBS)
    string(STRIP "${libs} ${needs}" libs)
    set(private)
  endif()
  configure_file(${PROJECT_SOURCE_DIR}/cmake/tidemark.pc.in ${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
set(pkg_config_dl)
if(CMAKE_DL_LIBS)
  set(pkg_config_dl " -l${CMAKE_DL_LIBS}")
endif()
set(dlpack_variable)
set(dlpack_cflags)
if(dlpack_include)  # a local path; override it elsewhere with --define-variable=dlpack_includedir=...
  set(dlpack_variable "dlpack_includedir=${dlpack_include}\n")
  set(dlpack_cflags "-isystem \${dlpack_includedir} ")
endif()
tidemark_install_pkg_config(tidemark tidemark "${PROJECT_DESCRIPTION}" "" "-pthread${pkg_config_dl}" "${dlpack_variable}"
  "${dlpack_cflags}-pthread${sanitize}")
if(TIDEMARK_DEVICE)
  tidemark_install_pkg_config(tidemark-cuda tidemark_cuda "${PROJECT_DESCRIPTION}, the device part" "tidemark = ${PROJECT_VERSION}"
    "-pthread${pkg_config_dl}" "" "")
endif()
if(PROJECT_IS_TOP_LEVEL)
  include(cmake/debian.cmake)
endif()
