# libtilec, shared and static, with what an embedder needs to find it: CMake's package and pkg-config's file.
#
# Both libraries are made of one object: what the public functions need of the folders, linked into it (`ld -r`), after
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

set(object ${PROJECT_BINARY_DIR}/libtilec.o)
set(archive ${PROJECT_BINARY_DIR}/libtilec.a)
add_custom_command(
  OUTPUT ${object} ${archive}
  COMMAND ${CMAKE_LINKER} -r -o ${object} -u tilec_version -u tilec_compile -u tilec_launch ${archives} ${LLVM_BLAKE3}
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden --wildcard --keep-global-symbol=tilec_* ${object}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
  COMMAND ${CMAKE_AR} rcs ${archive} ${object}
  DEPENDS ${TILEC_FOLDERS} ${archives}
  COMMENT "Linking libtilec.a"
  VERBATIM)
add_custom_target(tilec_static ALL DEPENDS ${archive})

set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
add_library(tilec_shared SHARED ${object})
add_dependencies(tilec_shared tilec_static)
target_link_libraries(tilec_shared PRIVATE m ${CMAKE_DL_LIBS})
target_link_options(tilec_shared PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/libtilec.map)
target_include_directories(tilec_shared INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
add_library(Tilec::tilec ALIAS tilec_shared)   # the name of the package, for add_subdirectory and FetchContent
set_target_properties(tilec_shared PROPERTIES
  OUTPUT_NAME tilec
  LINKER_LANGUAGE C
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/libtilec.map
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR})

# What a program has to link beside libtilec.a.
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
                              PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(TilecConfigVersion.cmake COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH TILEC_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})   # multiarch: three up
configure_file(cmake/tilec.pc.in tilec.pc @ONLY)

install(TARGETS tilec_shared)
install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/tilec DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/TilecConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/TilecConfigVersion.cmake
        DESTINATION ${package_dir})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tilec.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
