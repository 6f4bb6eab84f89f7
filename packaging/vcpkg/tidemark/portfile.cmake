# SPDX-License-Identifier: Apache-2.0
# An overlay port, which builds the sources around it. Modules are off, because compilers of vcpkg's triplets may lack them.
# Use --no-binarycaching. vcpkg only detects changes in this folder, and otherwise may restore a build of other sources.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

vcpkg_check_features(OUT_FEATURE_OPTIONS features FEATURES
  device TIDEMARK_DEVICE dlpack TIDEMARK_DLPACK mpi TIDEMARK_MPI planner TIDEMARK_PLANNER)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS
  -DTIDEMARK_BUILD_TESTS=OFF -DTIDEMARK_BUILD_EXAMPLES=OFF -DTIDEMARK_MODULES=OFF -DTIDEMARK_THRUST=OFF
  -DTIDEMARK_TORCH=OFF -DTIDEMARK_NUMPY=OFF -DTIDEMARK_TOOLS=OFF ${features})
vcpkg_cmake_install()
if("planner" IN_LIST FEATURES)
  vcpkg_cmake_config_fixup(PACKAGE_NAME tidemark-planner CONFIG_PATH lib/cmake/tidemark-planner
    DO_NOT_DELETE_PARENT_CONFIG_PATH)
  vcpkg_copy_tools(TOOL_NAMES tidemark-plan)
endif()
vcpkg_cmake_config_fixup(PACKAGE_NAME tidemark CONFIG_PATH lib/cmake/tidemark)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share"
  "${CURRENT_PACKAGES_DIR}/bin" "${CURRENT_PACKAGES_DIR}/debug/bin")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
