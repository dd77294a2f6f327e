# Language, warnings and build types.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_compile_options(-Wall -Wextra -fno-common)
if(TILEC_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()
add_compile_definitions(_GNU_SOURCE TILEC_VERSION="${PROJECT_VERSION}")
set(TILEC_COMMIT "" CACHE STRING "The commit that `tilec --version` names; empty: that of the repository")
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}/= -ffile-prefix-map=${PROJECT_BINARY_DIR}/=)   # no machine paths in what is built
# a * b + c is contracted by a pass of tilec, never behind its back: emulator and constant folding must agree.
add_compile_options(-ffp-contract=off)
# Leaving through a failure point clobbers registers only; the warning cannot see that arenas hold all state.
add_compile_options($<$<C_COMPILER_ID:GNU>:-Wno-clobbered>)

set(CMAKE_C_FLAGS_DEBUG "-O1 -g")
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(TILEC_SANITIZE OFF)
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(TILEC_SANITIZE ON)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
if(TILEC_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(TILEC_COVERAGE)   # %c: the counters are a file in memory, so that a process that is killed keeps what it counted;
                     # %9m: processes share nine such files, since many at once wait for one
  add_compile_options(-fprofile-instr-generate=${PROJECT_BINARY_DIR}/counts/%c%9m.profraw -fcoverage-mapping
                      -mllvm -runtime-counter-relocation)
  add_link_options(-fprofile-instr-generate)
endif()
