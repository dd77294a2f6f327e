# tilec_portable(TARGET): what is linked runs with glibc 2.31 (Debian 11, Ubuntu 20.04) and later, whatever glibc is here:
# older_glibc.c says how. It needs no library but those of glibc. tests/portable.py looks at what came of it.
include(CheckCSourceCompiles)
check_c_source_compiles("#include <features.h>
#if !defined __x86_64__ || !__GLIBC_PREREQ(2, 34)
#error
#endif
int main(void) { return 0; }" TILEC_GLIBC_IS_NEW)
find_library(TILEC_LIBPTHREAD libpthread.so.0)   # where the functions were; empty in a new glibc, which has it for old programs
find_library(TILEC_LIBDL libdl.so.2)

if(TILEC_PORTABLE)
  set(TILEC_STATIC_ZLIB libz.a)
  set(TILEC_STATIC_ZSTD libzstd.a)
  set(TILEC_STATIC_SQLITE libsqlite3.a)
endif()

function(tilec_portable target)
  if(NOT TILEC_PORTABLE OR TILEC_COVERAGE OR NOT TILEC_GLIBC_IS_NEW OR NOT TILEC_LIBPTHREAD OR NOT TILEC_LIBDL)
    return()
  endif()
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/older_glibc.c)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/older_glibc_start.c)
  endif()
  target_link_options(${target} PRIVATE -Wl,-z,nopack-relative-relocs -Wl,--push-state,--no-as-needed ${TILEC_LIBPTHREAD}
                      ${TILEC_LIBDL} -Wl,--pop-state)
endfunction()
