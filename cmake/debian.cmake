# SPDX-License-Identifier: Apache-2.0
# Debian packages by CPack: `cpack --config BUILD/CPackConfig.cmake -G DEB`. libtidemark-dev has headers,
# module sources, libraries, and files for CMake and pkg-config. tidemark-tools has the requested programs,
# tidemark-report and tidemark-plan. Python files are in neither.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_NAME tidemark)
set(CPACK_PACKAGE_VENDOR tidemark)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_COMPONENTS_ALL tidemark_dev)
if(TIDEMARK_TOOLS OR TIDEMARK_PLANNER)
  list(APPEND CPACK_COMPONENTS_ALL tidemark_tools)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_STRIP_FILES ON)
set(TIDEMARK_MAINTAINER "The tidemark authors <tidemark@localhost>" CACHE STRING "Who makes the Debian packages: a name, and an address in <>")
mark_as_advanced(TIDEMARK_MAINTAINER)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${TIDEMARK_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/planner/search
  ${PROJECT_BINARY_DIR}/planner/c)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)

set(CPACK_DEBIAN_TIDEMARK_DEV_PACKAGE_NAME libtidemark-dev)
set(CPACK_DEBIAN_TIDEMARK_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_TIDEMARK_DEV_PACKAGE_SUGGESTS "cmake (>= 3.28), pkgconf, tidemark-tools")
set(CPACK_COMPONENT_TIDEMARK_DEV_DESCRIPTION
  "Arenas, pools, epochs, workspaces and planned arenas behind std::pmr: headers, C++20 modules and libraries.")
if(TIDEMARK_DLPACK)  # the headers include it
  set(CPACK_DEBIAN_TIDEMARK_DEV_PACKAGE_DEPENDS libdlpack-dev)
endif()

set(CPACK_DEBIAN_TIDEMARK_TOOLS_PACKAGE_NAME tidemark-tools)
set(CPACK_DEBIAN_TIDEMARK_TOOLS_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_TIDEMARK_TOOLS_PACKAGE_DEPENDS python3)
set(CPACK_DEBIAN_TIDEMARK_TOOLS_PACKAGE_RECOMMENDS python3-matplotlib)
set(CPACK_COMPONENT_TIDEMARK_TOOLS_DESCRIPTION
  "tidemark-report turns a trace of allocations into a page; with the planner, tidemark-plan places blocks whose lifetimes are known.")
if(BUILD_SHARED_LIBS)
  string(APPEND CPACK_DEBIAN_TIDEMARK_TOOLS_PACKAGE_DEPENDS ", libtidemark-dev (= ${PROJECT_VERSION})")
endif()
include(CPack)
