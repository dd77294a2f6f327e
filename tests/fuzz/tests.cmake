# Fuzzers. The preset `fuzz` builds them with libFuzzer, for fuzz.py; the debug build replays what they once found.
set(fuzz_folder ${CMAKE_CURRENT_LIST_DIR})
add_custom_target(fuzzers)

function(tilec_fuzzer name)
  add_executable(${name} ${fuzz_folder}/${name}.c ${fuzz_folder}/input.c ${fuzz_folder}/launches.c ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PRIVATE tilec_runtime)
  add_dependencies(fuzzers ${name} fake_cuda)
endfunction()

file(GLOB fuzzers CONFIGURE_DEPENDS ${fuzz_folder}/fuzz_*.c)
foreach(source ${fuzzers})
  get_filename_component(name ${source} NAME_WE)
  file(GLOB inputs CONFIGURE_DEPENDS ${fuzz_folder}/inputs/${name}/*)
  if(TILEC_FUZZ)
    tilec_fuzzer(${name})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    if(NOT name MATCHES "npy|api|message")   # the others read text
      target_sources(${name} PRIVATE ${fuzz_folder}/tokens.c)
    endif()
  elseif((TILEC_SANITIZE OR TILEC_COVERAGE) AND inputs)
    tilec_fuzzer(${name} ${fuzz_folder}/replay.c)
    add_test(NAME ${name} COMMAND ${name} ${inputs})
    tilec_tier("debug:1" ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 300 ENVIRONMENT "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:fake_cuda>")
  endif()
endforeach()

add_test(NAME fuzz_driver COMMAND ${Python3_EXECUTABLE} ${fuzz_folder}/driver_test.py ${PROJECT_SOURCE_DIR})
tilec_tier("release:2" fuzz_driver)
set_tests_properties(fuzz_driver PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77
                     REQUIRED_FILES "${fuzz_folder}/fuzz.py;${fuzz_folder}/driver_test.py")
