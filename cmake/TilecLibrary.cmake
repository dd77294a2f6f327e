# libtilec, which compiles and launches, and libtilec-launch, which launches only; each shared and static, with what an embedder
# needs to find it: CMake's package and pkg-config's file.
#
# The libraries of a name are made of one object: what its public functions need of the folders, linked into it (`ld -r`), after
# which every other symbol becomes local. So tilec's internal names cannot clash with an embedder's, in the static library
# too. The compiler, and LLVM but for its BLAKE3, are not in it: `tilec serve-compiles` compiles (runtime/worker/).
get_target_property(type tilec_runtime TYPE)
if(NOT type STREQUAL "STATIC_LIBRARY")
  return()   # a partial tree has no library yet
endif()

set(archives)
foreach(folder ${TILEC_FOLDERS})
  get_target_property(type ${folder} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    list(APPEND archives $<TARGET_FILE:${folder}>)
  endif()
endforeach()

# tilec_library(NAME TARGET FUNCTION...): libNAME.a by the target TARGET_static and libNAME.so by TARGET_shared, of what these
# functions need.
function(tilec_library name target)
  set(object ${PROJECT_BINARY_DIR}/lib${name}.o)
  set(archive ${PROJECT_BINARY_DIR}/lib${name}.a)
  list(TRANSFORM ARGN PREPEND "-u" OUTPUT_VARIABLE roots)
  add_custom_command(
    OUTPUT ${object} ${archive}
    COMMAND ${CMAKE_LINKER} -r -o ${object} ${roots} ${archives} ${LLVM_BLAKE3}
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden --wildcard --keep-global-symbol=tilec_* ${object}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
    COMMAND ${CMAKE_AR} rcs ${archive} ${object}
    DEPENDS ${TILEC_FOLDERS} ${archives}
    COMMENT "Linking lib${name}.a"
    VERBATIM)
  add_custom_target(${target}_static ALL DEPENDS ${archive})
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  add_library(${target}_shared SHARED ${object})
  add_dependencies(${target}_shared ${target}_static)
  target_link_libraries(${target}_shared PRIVATE m ${CMAKE_DL_LIBS})
  tilec_portable(${target}_shared)
  target_link_options(${target}_shared PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/libtilec.map)
  target_include_directories(${target}_shared INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  set_target_properties(${target}_shared PROPERTIES
    OUTPUT_NAME ${name}
    LINKER_LANGUAGE C
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/libtilec.map
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR})
  install(TARGETS ${target}_shared LIBRARY COMPONENT lib${name} NAMELINK_COMPONENT dev)
  install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
endfunction()

tilec_library(tilec tilec tilec_version tilec_compile tilec_launch)
tilec_library(tilec-launch tilec_launch tilec_version tilec_launch)
add_library(Tilec::tilec ALIAS tilec_shared)   # the names of the package, for add_subdirectory and FetchContent
add_library(Tilec::launch ALIAS tilec_launch_shared)

# The libraries that a program links after a static archive.
set(TILEC_STATIC_DEPENDENCIES m ${CMAKE_DL_LIBS})
if(TILEC_SANITIZE)
  list(APPEND TILEC_STATIC_DEPENDENCIES -fsanitize=address,undefined)
endif()
set(TILEC_PC_PRIVATE)
foreach(item ${TILEC_STATIC_DEPENDENCIES})
  if(item MATCHES "^[-/]")
    string(APPEND TILEC_PC_PRIVATE " ${item}")
  else()
    string(APPEND TILEC_PC_PRIVATE " -l${item}")
  endif()
endforeach()

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tilec)
configure_package_config_file(cmake/TilecConfig.cmake.in TilecConfig.cmake INSTALL_DESTINATION ${package_dir}
                              PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(TilecConfigVersion.cmake COMPATIBILITY SameMajorVersion)
file(RELATIVE_PATH TILEC_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})   # multiarch: three up
set(TILEC_PC_NAME tilec)
set(TILEC_PC_DESCRIPTION "compiler for GPU tile kernels")
configure_file(cmake/tilec.pc.in tilec.pc @ONLY)
set(TILEC_PC_NAME tilec-launch)
set(TILEC_PC_DESCRIPTION "launches GPU kernels compiled by tilec")
configure_file(cmake/tilec.pc.in tilec-launch.pc @ONLY)

install(DIRECTORY include/tilec DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
install(FILES cmake/TilecKernel.cmake ${CMAKE_CURRENT_BINARY_DIR}/TilecConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/TilecConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT dev)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tilec.pc ${CMAKE_CURRENT_BINARY_DIR}/tilec-launch.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT dev)
