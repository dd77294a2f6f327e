# Packages for Debian: `cpack -G DEB` of a build by the preset `package`, which links what Debian has. tilec: the program;
# libtilec1, libtilec-launch1: the shared libraries, with their SOVERSION; libtilec-dev: what is needed to build with them.
set(CPACK_PACKAGE_NAME tilec)
set(CPACK_PACKAGE_CONTACT "The tilec authors <tilec@example.org>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL tilec libtilec libtilec-launch dev)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)

# tilec_deb(COMPONENT PACKAGE SECTION SUMMARY DESCRIPTION...)
function(tilec_deb component package section summary)
  string(TOUPPER ${component} upper)
  string(JOIN "\n" description "${summary}" ${ARGN})
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${description}" PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${description}" PARENT_SCOPE)
  set(doc ${CMAKE_INSTALL_DATADIR}/doc/${package})
  install(FILES ${PROJECT_BINARY_DIR}/package/copyright ${PROJECT_BINARY_DIR}/package/changelog.gz DESTINATION ${doc} COMPONENT ${component}
          EXCLUDE_FROM_ALL)
endfunction()

# licenses/: notices of the libraries that are linked in. Of all packages, and in doc/tilec of an installation.
file(GLOB notices CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/licenses/*.txt)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${notices} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/tilec COMPONENT licences)
set(notice_texts)
foreach(notice ${notices})
  file(READ ${notice} text)
  string(REPLACE "\n" "\n " text "\n${text}")
  string(REPLACE "\n \n" "\n .\n" text "${text}")
  string(REPLACE "\n \n" "\n .\n" text "${text}")   # of two empty lines the second
  string(APPEND notice_texts "${text}.")
endforeach()

file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/package)
file(WRITE ${PROJECT_BINARY_DIR}/package/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: tilec

Files: *
Copyright: Copyright 2026 The tilec authors
License: Apache-2.0
 On Debian systems, the text of the Apache License, version 2.0, is in /usr/share/common-licenses/Apache-2.0.

Comment: The program and the libraries contain code of these libraries.${notice_texts}
")
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)   # SOURCE_DATE_EPOCH, where it is set
file(WRITE ${PROJECT_BINARY_DIR}/package/changelog "tilec (${PROJECT_VERSION}) unstable; urgency=medium

  * CHANGELOG.md of the sources says what changed.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
find_program(TILEC_GZIP gzip)
if(TILEC_GZIP)
  execute_process(COMMAND ${TILEC_GZIP} -9nc ${PROJECT_BINARY_DIR}/package/changelog OUTPUT_FILE ${PROJECT_BINARY_DIR}/package/changelog.gz)
endif()

# ldconfig runs by a trigger. CPack would add scripts that call it, unless it is told of some: there are none.
file(WRITE ${PROJECT_BINARY_DIR}/package/triggers "activate-noawait ldconfig\n")
foreach(library LIBTILEC LIBTILEC-LAUNCH)
  set(CPACK_DEBIAN_${library}_PACKAGE_CONTROL_EXTRA "${PROJECT_BINARY_DIR}/package/triggers;no_script/postinst;no_script/postrm")
endforeach()

tilec_deb(tilec tilec devel "compiler for GPU tile kernels" "tilec compiles kernels that are written with tiles to PTX and cubin for NVIDIA"
          "GPUs, tests them on an emulator of the CPU, and times and tunes them.")
tilec_deb(libtilec libtilec${PROJECT_VERSION_MAJOR} libs "compiles and launches GPU tile kernels" "The library opens, launches and emulates kernels in the language of tilec;" "the program tilec compiles for it.")
tilec_deb(libtilec-launch libtilec-launch${PROJECT_VERSION_MAJOR} libs "launches compiled GPU tile kernels" "The library launches kernels that tilec has compiled elsewhere, and needs no" "compiler.")
tilec_deb(dev libtilec-dev libdevel "headers and libraries of tilec" "The header, static libraries, and files for CMake and pkg-config, to build" "programs that compile or launch kernels with tilec.")
set(CPACK_DEBIAN_LIBTILEC_PACKAGE_RECOMMENDS tilec)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libtilec${PROJECT_VERSION_MAJOR} (= ${PROJECT_VERSION}), libtilec-launch${PROJECT_VERSION_MAJOR} (= ${PROJECT_VERSION})")
include(CPack)
